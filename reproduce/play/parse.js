// Readers of replies, as in coevolve/text/parse.py: from text to a value, or null.
//
// Code fences, which the embedded model never writes, are ordinary text here.

const NUMBER = /^-?(?:0|[1-9][0-9]{0,5})(?:\.[0-9]{1,6})?$/;
const PLACEHOLDER = /^(?:[.…]+|\[(?:Your|Write|The last line)\b[^[\]]*\]|\$ANSWER\$?)$/;
const LIST_MARK = /^(?:[0-9]{1,3}[.)]|[-*])[^\S\n]+/;
const HEDGE = /(?<!\p{L})or(?!\p{L})/iu;
const INEQUALITY = /[<>≤≥]|\\(?:lt|gt|leq?|geq?)(?![a-z])/;
const BOX = /\\(?:boxed|fbox)(?![A-Za-z])\s*/g;
const UNBRACED = /^(?:[^\s{$][^$\n]*(?=\$)|[^\s{}$]+)/;
const FONT = /\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}/g;
const WORDS = /^\p{L}{2,}(?:[^\p{L}\p{N}_\\]+\p{L}{2,})*$/u;
const ANSWER_LINE =
  /^[^\S\n]*(?:[-*+>#]+[^\S\n]+)?(\*\*|__)?ANSWER(?:\*\*|__)?:(?:\*\*|__)?(.*)$/gm;

/** Pair opening and closing tags, or return null if they do not strictly alternate. */
export function pairedTags(text, pattern) {
  const matches = [...text.matchAll(pattern)];
  if (matches.length % 2) return null;
  const pairs = [];
  for (let i = 0; i < matches.length; i += 2) {
    const [opening, closing] = [matches[i], matches[i + 1]];
    if (opening[0].startsWith("</") || !closing[0].startsWith("</")) return null;
    const start = opening.index + opening[0].length;
    pairs.push({ opening: opening[0], content: text.slice(start, closing.index) });
  }
  return pairs;
}

/** Return the content of each <name> pair, or null if the tags do not strictly alternate. */
export function tagPairs(text, name) {
  const pairs = pairedTags(text, new RegExp(`<${name}>|</${name}>`, "g"));
  return pairs && pairs.map((pair) => pair.content);
}

/** Return the content of the text's one <name> pair, "" without exactly one. */
export function only(text, name) {
  const pairs = tagPairs(text, name);
  return pairs && pairs.length === 1 ? pairs[0] : "";
}

/** Strip a content; null if it is empty or consists of untouched placeholders. */
export function filled(content) {
  const stripped = content.trim();
  if (PLACEHOLDER.test(stripped)) return null;
  return stripped.split("\n").every(isPlaceholder) ? null : stripped;
}

/** Whether a line is empty or a placeholder, perhaps as an item of a list. */
function isPlaceholder(line) {
  const item = line.trim().replace(LIST_MARK, "");
  return item === "" || PLACEHOLDER.test(item);
}

/** Return the stripped content of the text's one <name> pair, or null. */
export function tag(text, name) {
  return filled(only(text, name));
}

/** Read a plain decimal of at most six digits and six decimals. */
export function number(text) {
  const stripped = text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, "");
  return NUMBER.test(stripped) ? Number(stripped) : null;
}

/** Return the number in the text's one <score> pair. */
export function scoreValue(text) {
  return number(only(text, "score"));
}

/** Map a score s from 1 to 10 to (s - 1) / 9; 0.5 if it is out of range, null if unreadable. */
export function judgeScore(text) {
  const score = scoreValue(text);
  if (score === null) return null;
  return score >= 1 && score <= 10 ? (score - 1) / 9 : 0.5;
}

/** Return the content of the last box; null if it is unclosed, unfilled or hedges. */
export function boxed(text) {
  const starts = [...text.matchAll(BOX)];
  if (starts.length === 0) return null;
  const last = starts[starts.length - 1];
  const content = braced(text, last.index + last[0].length);
  return content === null ? null : finalAnswer(content);
}

function braced(text, start) {
  if (text[start] !== "{") {
    const word = text.slice(start).match(UNBRACED);
    return word && word[0].replace(/[.,;:]+$/, "");
  }
  let depth = 0;
  for (let i = start; i < text.length; i++) {
    if (text[i] === "\\") i++; // an escaped brace changes no depth
    else if (text[i] === "{") depth++;
    else if (text[i] === "}" && --depth === 0) return text.slice(start + 1, i);
  }
  return null;
}

/** Return the rest of the last line that starts with `ANSWER:`. */
export function answerLine(text) {
  const lines = [...text.matchAll(ANSWER_LINE)];
  if (lines.length === 0) return null;
  const [, boldMark = "", rest] = lines[lines.length - 1];
  const content = rest.trimEnd();
  const isBold = boldMark !== "" && content.endsWith(boldMark);
  return finalAnswer(isBold ? content.slice(0, -boldMark.length) : content);
}

function finalAnswer(content) {
  const answer = filled(content);
  if (answer === null) return null;
  const words = answer.replace(FONT, "$1").replace(/^[ .!?*"']+|[ .!?*"']+$/g, "");
  return offersAlternatives(answer) && !WORDS.test(words) ? null : answer;
}

/** Whether an answer joins alternatives by "or"; inequalities joined by it are one set. */
export function offersAlternatives(answer) {
  const alternatives = answer.split(new RegExp(HEDGE, "giu"));
  if (alternatives.length === 1) return false;
  return !alternatives.every((part) => INEQUALITY.test(part));
}

// The format reward of MAE and SAGE, as in coevolve/methods/format_reward.py.

const VERIFIER_TAGS = { math: "answer", code: "tests" };

/** Return the tag that holds the verifier of a kind of task, or null. */
export function verifierTag(kind) {
  return Object.hasOwn(VERIFIER_TAGS, kind) ? VERIFIER_TAGS[kind] : null;
}

const READERS = {
  score: number,
  type: (content) => verifierTag(content.trim()),
};

/** Return 1 for exactly one valid <name> pair, 0.5 for several with a valid one, else 0. */
export function formatReward(text, name) {
  const read = READERS[name] ?? filled;
  const contents = tagPairs(text, name) ?? [];
  if (!contents.some((content) => read(content) !== null)) return 0;
  return contents.length === 1 ? 1 : 0.5;
}
