// Looks for what makes a page hard to read or to use; the result maps a check to its findings.
// tools/site_looks.py evaluates this in every page.
(() => {
  const AA = 4.5; // contrast of text, and of large text, by WCAG 2.1 (level AA)
  const AA_LARGE = 3;
  const findings = { width: [], contrast: [], names: [], ids: [], headings: [] };
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });

  /** Return red, green, blue and opacity, from 0 to 1, of any colour that CSS knows. */
  function channels(colour) {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].map((value) => value / 255);
  }

  function blend(front, back, opacity) {
    return [0, 1, 2].map((i) => front[i] * opacity + back[i] * (1 - opacity));
  }

  /** Return what stands behind an element's text; null behind a picture. */
  function background(element) {
    if (!element) return channels(getComputedStyle(document.documentElement).colorScheme
      .includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches
      ? "#121212" : "#ffffff"); // of Chromium's empty page
    const style = getComputedStyle(element);
    if (style.backgroundImage !== "none") return null;
    const own = channels(style.backgroundColor);
    if (own[3] === 1) return own;
    const behind = background(element.parentElement);
    return behind && blend(own, behind, own[3]);
  }

  function luminance(colour) {
    const linear = colour.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  function contrast(element) {
    const behind = background(element);
    if (!behind) return Infinity;
    const colour = channels(getComputedStyle(element).color);
    let opacity = colour[3];
    for (let one = element; one; one = one.parentElement) opacity *= getComputedStyle(one).opacity;
    const [dark, light] = [blend(colour, behind, opacity), behind.slice(0, 3)]
      .map(luminance).sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }

  function isLarge(element) {
    const { fontSize, fontWeight } = getComputedStyle(element);
    const size = parseFloat(fontSize);
    return size >= 24 || (size >= 18.66 && Number(fontWeight) >= 700);
  }

  const isVisible = (element) => element.checkVisibility({ visibilityProperty: true });
  const describe = (element) => `${element.localName} "${element.textContent.trim().slice(0, 40)}"`;

  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) {
    const isCut = (one) => one.getBoundingClientRect().right > innerWidth + 1;
    const widest = [...document.body.querySelectorAll("*")].find((one) => isCut(one));
    findings.width.push(`${root.scrollWidth} px of ${innerWidth}: ${widest && describe(widest)}`);
  }

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(element)) continue;
    seen.add(element);
    if (element.closest("svg, script, style, noscript, :disabled") || !isVisible(element)) continue;
    const ratio = contrast(element);
    if (ratio >= (isLarge(element) ? AA_LARGE : AA)) continue;
    findings.contrast.push(`${ratio.toFixed(1)}: ${describe(element)}`);
  }

  const hasName = (one) => one.ariaLabel || one.getAttribute("aria-labelledby") || one.title;
  for (const picture of document.querySelectorAll("img:not([alt])")) {
    findings.names.push(`img without alt: ${picture.src.slice(0, 60)}`);
  }
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    if (!field.labels.length && !hasName(field)) findings.names.push(`${field.localName} #${field.id}`);
  }
  for (const one of document.querySelectorAll("a[href], button")) {
    const says = one.textContent.trim() || one.querySelector("img[alt], svg[aria-label]");
    if (!says && !hasName(one)) findings.names.push(`${one.localName} ${one.href ?? ""}`);
  }
  if (!root.lang) findings.names.push("page without a language");
  if (!document.title) findings.names.push("page without a title");

  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  findings.ids.push(...new Set(ids.filter((id, place) => ids.indexOf(id) !== place)));

  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const next = Number(heading.localName[1]);
    if (next > level + 1) findings.headings.push(`h${next} after h${level}: ${describe(heading)}`);
    level = next;
  }
  if (level === 0) findings.headings.push("page without a heading");
  return findings;
})()
