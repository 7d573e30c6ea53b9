// Audits the site by axe-core and Lighthouse. After `make site`, two commands:
//
//   npm install --prefix /tmp/audit axe-core@4.14.1 lighthouse@12.8.2 puppeteer-core@24.43.1
//   node benchmarks/site_audit.mjs --packages /tmp/audit
//
// It needs Node 20 and Chromium, and writes benchmarks/site_audit.json. axe-core reads every page
// at two widths, light and dark, with all folded parts open. Lighthouse loads the pages of
// LIGHTHOUSE_PAGES as a phone and as a desktop does. The page with an episode is also loaded over a
// slow connection. The exit code is 1 if axe-core finds anything.

import { createReadStream, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { createGzip } from "node:zlib";

const ROOT = path.dirname(import.meta.dirname);
const WIDTHS = [400, 1400];
const THEMES = ["light", "dark"];
const HEIGHT = 900;
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const PLAY = "results/play.html";
const LIGHTHOUSE_PAGES = [
  "index.html",
  "results/standard/index.html",
  "results/standard/report/mae.html",
  "docs/ledger.html",
  "notebooks/start_here.html",
  "docs/tour.html",
  PLAY,
];
const CATEGORIES = ["performance", "accessibility", "best-practices", "seo"];
const PATIENCE = 600_000; // ms; a busy machine is slow
const QUIET = 1000; // ms without a change, after which a page that writes itself is complete
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".png": "image/png",
};

/** Serve a folder as a static host does, with text compressed; return the server. */
function serve(folder) {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    const file = path.join(folder, decodeURIComponent(pathname));
    if (!file.startsWith(folder) || !statSync(file, { throwIfNoEntry: false })?.isFile()) {
      response.writeHead(404).end();
      return;
    }
    const type = TYPES[path.extname(file)] ?? "text/plain; charset=utf-8";
    const headers = { "Content-Type": type, "Cache-Control": "max-age=600" };
    if (type === "image/png") {
      response.writeHead(200, headers);
      createReadStream(file).pipe(response);
    } else {
      response.writeHead(200, { ...headers, "Content-Encoding": "gzip" });
      createReadStream(file).pipe(createGzip()).pipe(response);
    }
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

function pagesOf(site) {
  const files = readdirSync(site, { recursive: true });
  return files.filter((file) => file.endsWith(".html")).sort();
}

/** Resolve when nothing on the page has changed for a while. */
function settled(quiet, patience) {
  return new Promise((resolve) => {
    let timer = setTimeout(resolve, quiet);
    const restart = () => {
      clearTimeout(timer);
      timer = setTimeout(resolve, quiet);
    };
    new MutationObserver(restart).observe(document, { childList: true, subtree: true });
    setTimeout(resolve, patience);
  });
}

/** Return what axe-core finds on a page: one entry a rule and view. */
async function auditByAxe(tab, axe, address, page) {
  await tab.goto(address + page, { waitUntil: "load", timeout: PATIENCE });
  await tab.evaluate(settled, QUIET, PATIENCE / 10);
  await tab.evaluate(() => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
    // axe-core decides no contrast in front of a gradient, such as the shade of a wide table.
    for (const table of document.querySelectorAll(".scroll")) table.style.background = "none";
  });
  await tab.evaluate(axe);
  const found = [];
  for (const width of WIDTHS) {
    await tab.setViewport({ width, height: HEIGHT });
    for (const theme of THEMES) {
      await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
      const { violations } = await tab.evaluate(
        (tags) => axe.run(document, { runOnly: tags, resultTypes: ["violations"] }),
        RULES,
      );
      for (const { id, impact, tags, nodes } of violations) {
        const kind = tags.includes("best-practice") ? "best practice" : "WCAG";
        const first = nodes[0].html.slice(0, 200);
        found.push({ page, width, theme, rule: id, kind, impact, elements: nodes.length, first });
      }
    }
  }
  return found;
}

/** Return the scores of a page, 0 to 100, its size, and the audits that cost it points. */
async function auditByLighthouse(lighthouse, config, browser, address) {
  const { port } = new URL(browser.wsEndpoint());
  const flags = {
    port: Number(port),
    onlyCategories: CATEGORIES,
    maxWaitForLoad: PATIENCE,
    logLevel: "error",
  };
  const { lhr } = await lighthouse(address, flags, config);
  const scores = {};
  const costly = new Set();
  for (const category of CATEGORIES) {
    const { score, auditRefs } = lhr.categories[category];
    scores[category] = Math.round(100 * score);
    for (const { id, weight } of auditRefs) {
      const value = lhr.audits[id].score;
      if (weight > 0 && value !== null && value < 0.9) costly.add(id);
    }
  }
  return {
    ...scores,
    kilobytes: Math.round(lhr.audits["total-byte-weight"].numericValue / 1000),
    // Lighthouse's own measure of the processor: a fast desktop has 1,500 to 2,000 or more.
    processor: lhr.environment.benchmarkIndex,
    costly: [...costly].sort(),
  };
}

/** Return when the page with an episode shows what, in seconds, over the connection of a phone. */
async function timeSlowly(browser, conditions, address) {
  const tab = await browser.newPage();
  await tab.setCacheEnabled(false);
  await tab.emulateNetworkConditions(conditions);
  await tab.evaluateOnNewDocument(() => {
    globalThis.seen = {};
    const parts = { choices: "#methods label", episode: "#turn-0" };
    const look = () => {
      for (const [name, selector] of Object.entries(parts)) {
        if (document.querySelector(selector)) globalThis.seen[name] ??= performance.now();
      }
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  await tab.goto(address + PLAY, { waitUntil: "load", timeout: PATIENCE });
  await tab.waitForFunction(() => globalThis.seen.episode, { timeout: PATIENCE });
  const times = await tab.evaluate(() => ({
    text: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    ...globalThis.seen,
    file: performance.getEntriesByType("navigation")[0].loadEventEnd,
  }));
  const inSeconds = ([name, time]) => [name, Math.round(time / 100) / 10];
  return Object.fromEntries(Object.entries(times).map(inSeconds));
}

async function main() {
  const { values } = parseArgs({
    options: {
      site: { type: "string", default: path.join(ROOT, "site") },
      packages: { type: "string", default: ROOT },
      chromium: { type: "string", default: "/usr/bin/chromium" },
      out: { type: "string", default: path.join(ROOT, "benchmarks/site_audit.json") },
    },
  });
  const site = path.resolve(values.site);
  const require = createRequire(path.join(path.resolve(values.packages), "package.json"));
  const load = (name) => import(pathToFileURL(require.resolve(name)));
  const { default: puppeteer, PredefinedNetworkConditions } = await load("puppeteer-core");
  const { default: lighthouse, desktopConfig } = await load("lighthouse");
  const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf-8");

  const server = await serve(site);
  const address = `http://127.0.0.1:${server.address().port}/`;
  const browser = await puppeteer.launch({
    executablePath: values.chromium,
    args: ["--no-sandbox"],
    protocolTimeout: PATIENCE,
    timeout: PATIENCE,
  });
  const pages = pagesOf(site);
  const result = {
    browser: await browser.version(),
    pages: pages.length,
    views: pages.length * WIDTHS.length * THEMES.length,
    axe: [],
    lighthouse: [],
  };
  const tab = await browser.newPage();
  for (const page of pages) {
    const found = await auditByAxe(tab, axe, address, page);
    console.log(page, ...new Set(found.map(({ rule }) => rule)));
    result.axe.push(...found);
  }
  await tab.close();
  for (const page of LIGHTHOUSE_PAGES) {
    for (const preset of ["mobile", "desktop"]) {
      const config = preset === "desktop" ? desktopConfig : undefined;
      const row = await auditByLighthouse(lighthouse, config, browser, address + page);
      console.log(page, preset, row);
      result.lighthouse.push({ page, preset, ...row });
    }
  }
  const slow = PredefinedNetworkConditions["Slow 4G"];
  result.play_on_slow_4g = await timeSlowly(browser, slow, address);
  console.log(PLAY, "over a slow 4G connection, s", result.play_on_slow_4g);
  writeFileSync(values.out, `${JSON.stringify(result, null, 1)}\n`);
  await browser.close();
  server.close();
  process.exitCode = result.axe.length ? 1 : 0;
}

await main();
