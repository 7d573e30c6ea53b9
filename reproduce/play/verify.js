// The verifiers of SAGE and SPICE, for the answers that occur in the tiny world.
//
// Not here: LaTeX, units, and Python beyond `assert f(3)==7` and `assert g("381")=="138"`.

import { evaluate, runOperations } from "./world.js";

const PLAIN_NUMBER = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)$/;
const OPTION = /^[([]?\s*([A-Za-z])(?:\s*[)\].:](.*))?$/s;
const TOLERANCE = 1e-6;
const ASSERT = /^assert ([A-Za-z_]\w*)\((-?\d+|"[^"\\]*")\)\s*==\s*(-?\d+|"[^"\\]*")$/;
const LEADING_ZERO = /^-?0\d/;

/** Return an answer without the marks around it. */
function unwrapped(text) {
  let shorter = text.trim();
  let before;
  do {
    before = shorter;
    shorter = before.replace(/^[ \t\r\n~]+|[ \t\r\n~\\,;:]+$/g, "");
    if (shorter.endsWith(".") && !shorter.endsWith("..")) shorter = shorter.slice(0, -1);
    shorter = shorter.replace(/^(?:=>|==?)\s*(?=.)/, "").replace(/^[*`]+|[*`]+$/g, "");
  } while (shorter !== before);
  return shorter;
}

/** Return a name without case, articles, punctuation and blanks that carry no meaning. */
function spelling(text) {
  const lower = unwrapped(text).toLowerCase();
  const words = lower
    .replace(/['`]/g, "")
    .replace(/(?<=[0-9]),(?=[0-9]{3}(?![0-9]))/g, "")
    .replace(/(?<=\p{L})\.|\.(?![0-9])/gu, "")
    .replace(/[,;:!?"()[\]{}*_/\\…\u2010-\u2015]|(?<=\w)-|-(?!\w|\.[0-9])/g, " ")
    .trim()
    .replace(/\s+/g, " ")
    .replace(/\b([a-z]) (?=[a-z]\b)/g, "$1")
    .replace(/\b(?:a|an|the)\b/g, " ")
    .trim()
    .replace(/\s+/g, " ");
  return words || lower;
}

/** Whether two texts are spellings of one name. */
export function exact(answer, gold) {
  if (answer === null) return false;
  const answerSpelling = spelling(answer);
  return answerSpelling !== "" && answerSpelling === spelling(gold);
}

/** Whether two numbers differ by at most one millionth, absolute or relative. */
export function near(answer, gold) {
  if (answer === null) return false;
  const numbers = [answer, gold].map(unwrapped);
  if (!numbers.every((text) => PLAIN_NUMBER.test(text))) return false;
  const [value, goldValue] = numbers.map(Number);
  return Math.abs(value - goldValue) <= TOLERANCE * Math.max(1, Math.abs(goldValue));
}

/** Whether an answer is the letter of the correct option. */
export function choice(answer, gold) {
  if (answer === null) return false;
  const option = unwrapped(answer).match(OPTION);
  return option !== null && option[1].toUpperCase() === gold.toUpperCase();
}

// Programs and their tests.

/** Read lines of `assert name(data)==data`; null if one has another form. */
function readTests(tests) {
  const calls = [];
  for (const line of tests.split("\n")) {
    if (line.trim() === "") continue;
    const match = line.match(ASSERT);
    if (match === null) return null;
    const [, name, argument, expected] = match;
    if (LEADING_ZERO.test(argument) || LEADING_ZERO.test(expected)) return null;
    calls.push({ name, argument: JSON.parse(argument), expected: JSON.parse(expected) });
  }
  return calls.length ? calls : null;
}

/** Whether tests run, and fail for an empty solution. */
export function validTests(tests) {
  return readTests(tests) !== null;
}

/** Return the share of the tests that an answer passes as a program; none pass after an error. */
export function passRate(question, answer, tests) {
  const calls = readTests(tests);
  const isListProgram = question.startsWith("g(");
  let passed = 0;
  for (const { name, argument, expected } of calls) {
    const isDefined = name === (isListProgram ? "g" : "f");
    const isText = typeof argument === "string";
    if (!isDefined || isText !== isListProgram) break;
    const value = isListProgram ? runOperations(answer, argument) : evaluate(answer, argument);
    if (value === null) break;
    if (value === expected) passed++;
  }
  return passed / calls.length;
}
