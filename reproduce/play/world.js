// The tiny world's oracle, as in src/tinyworld: which text is a question, and what answers it.
//
// Patterns, plans, facts and factors come from Python; the arithmetic of each family is here.

const LONGEST = 100; // characters of a question
const CHOICE = /^(.*?) A\)(.*?) B\)(.*?) C\)(.*?) D\)(.*)$/;
const LETTERS = "ABCD";
const EXPRESSION = /^(?!.*0x)[x0-9+*() -]{1,40}$/;

const OPERATIONS = {
  sort: (text) => [...text].sort().join(""),
  rev: (text) => [...text].reverse().join(""),
  max: (text) => [...text].sort().pop(),
  min: (text) => [...text].sort()[0],
  first: (text) => text.slice(0, 1),
  last: (text) => text.slice(-1),
  tail: (text) => text.slice(1),
};

/** Apply list operations, separated by spaces; null if one that is needed does not exist. */
export function runOperations(program, text) {
  for (const name of program.split(/\s+/)) {
    if (text === "") return "";
    if (!Object.hasOwn(OPERATIONS, name)) return null;
    text = OPERATIONS[name](text);
  }
  return text;
}

/** Evaluate an expression of x, whole numbers, + - * and brackets; null for anything else. */
export function evaluate(expression, x) {
  if (!EXPRESSION.test(expression) || expression.startsWith(" ")) return null;
  const tokens = expression.match(/\d+|\S/g);
  let place = 0;

  function sum() {
    let value = product();
    while (value !== null && (tokens[place] === "+" || tokens[place] === "-")) {
      const sign = tokens[place++] === "+" ? 1 : -1;
      const term = product();
      value = term === null ? null : value + sign * term;
    }
    return value;
  }

  function product() {
    let value = factor();
    while (value !== null && tokens[place] === "*") {
      place++;
      const other = factor();
      value = other === null ? null : value * other;
    }
    return value;
  }

  function factor() {
    const token = tokens[place++];
    if (token === "x") return x;
    if (token === "-") {
      const value = factor();
      return value === null ? null : -value;
    }
    if (token === "(") {
      const value = sum();
      return tokens[place++] === ")" ? value : null;
    }
    // Python refuses leading zeros, but not those of zero itself.
    return /^(?:0+|[1-9]\d*)$/.test(token ?? "") ? Number(token) : null;
  }

  const value = sum();
  return place === tokens.length ? value : null;
}

function sign(verb) {
  return verb === "Gets" ? 1 : -1;
}

function endOfStory(start, verb, amount, verb2 = "Gets", amount2 = 0) {
  const end = start + sign(verb) * amount + sign(verb2) * amount2;
  return end >= 0 ? end : null;
}

/** Return the function slope * x + offset through two examples, or null. */
function fitLine(x, y, x2, y2) {
  if (x2 <= x || (y2 - y) % (x2 - x)) return null;
  const slope = (y2 - y) / (x2 - x);
  const offset = y - slope * x;
  if (slope < 1 || slope > 9 || offset < -9 || offset > 9) return null;
  return { slope, offset };
}

function writeLine({ slope, offset }) {
  const product = slope === 1 ? "x" : `x*${slope}`;
  if (offset === 0) return product;
  return product + (offset > 0 ? `+${offset}` : `${offset}`);
}

function swap(letters, moves) {
  const row = letters.split(" ");
  for (const [i, j] of moves.trim().split(" ")) {
    [row[i - 1], row[j - 1]] = [row[j - 1], row[i - 1]];
  }
  return row.join(" ");
}

function asNumber(text) {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : (text ?? null);
}

export class World {
  constructor(tables) {
    this.tables = tables;
    this.answers = this.answersOfFamilies();
    this.families = tables.families.map((family) => ({
      ...family,
      whole: new RegExp(`^(?:${family.pattern})$`),
    }));
  }

  /** Return, by family, the function from a question's values to its answer, or to null. */
  answersOfFamilies() {
    const { factors, facts, attributeOf } = this.tables;
    return {
      add: (a, b) => a + b,
      sub: (a, b) => a - b,
      mul: (a, b) => a * b,
      prec: (a, b, c) => a + b * c,
      eq: (a, b, total) => {
        const x = (total - b) / (a ?? 1);
        return x >= 0 && Number.isInteger(x) ? x : null;
      },
      next: (a, b, c) => (b - a === c - b ? 2 * c - b : null),
      word: endOfStory,
      word2: endOfStory,
      rate: (count, cost, newCount) =>
        cost === 0 || newCount === 0 || cost % count ? null : (cost / count) * newCount,
      unit: (count, units) => (Object.hasOwn(factors, units) ? count * factors[units] : null),
      div: (a, b) => a / b,
      mod: (a, factor, divisor) => (a * (factor ?? 1)) % divisor,
      cmp: (word, a, b) => {
        if (a === b) return null;
        return word === "bigger" ? Math.max(a, b) : Math.min(a, b);
      },
      sort: (digits) => runOperations("sort", digits),
      rev: (letters) => runOperations("rev", letters),
      count: (letter, letters) => letters.split(letter).length - 1,
      swap,
      code: (...examples) => {
        const line = fitLine(...examples);
        return line && writeLine(line);
      },
      ops: (...examples) => this.fitProgram(...examples),
      fact: (entity, attribute) => facts[entity]?.[attribute] ?? null,
      yn: (entity, value) => {
        const truth = facts[entity]?.[attributeOf[value]];
        if (truth === undefined) return null;
        return truth === value ? "yes" : "no";
      },
    };
  }

  fitProgram(text, result, text2, result2) {
    const fits = (program) =>
      runOperations(program, text) === result && runOperations(program, text2) === result2;
    return this.tables.programs.find(fits) ?? null;
  }

  values(family, groups) {
    if (family.name === "fact") {
      const [before, entity, after] = groups;
      return before && after ? [entity, ""] : [entity, before ?? after ?? ""];
    }
    const digitsAreText = family.name === "sort" || family.name === "ops";
    return digitsAreText ? groups : groups.map(asNumber);
  }

  /** Read a question; return {family, plan, values, answer}, or null if it is ill-formed. */
  read(question) {
    if (question.length > LONGEST || /[^\x00-\x7f]/.test(question)) return null;
    const choice = question.match(CHOICE);
    if (choice) return this.readChoice(choice[1], choice.slice(2));
    for (const family of this.families) {
      const match = question.match(family.whole);
      if (match === null) continue;
      const values = this.values(family, match.slice(1));
      const answer = this.answers[family.name](...values);
      if (answer === null) continue;
      return { family: family.name, plan: family.plan, values, answer: String(answer) };
    }
    return null;
  }

  readChoice(stem, options) {
    if (this.read(stem) === null || new Set(options).size < options.length) return null;
    const correct = [...LETTERS].filter((_, i) => this.isCorrect(stem, options[i]));
    if (correct.length !== 1) return null;
    return { family: "mc", plan: this.tables.choicePlan, values: [stem], answer: correct[0] };
  }

  /** Whether a question is well formed. */
  valid(question) {
    return this.read(question) !== null;
  }

  /** Whether an answer is correct; null for an ill-formed question. */
  isCorrect(question, answer) {
    const task = this.read(question);
    if (task === null) return null;
    if (answer === null) return false;
    if (answer === task.answer) return true;
    if (task.family === "code") return this.isSameFunction(answer, task.values);
    if (task.family === "ops") return this.isSameProgram(answer, task.answer);
    return false;
  }

  isSameFunction(answer, examples) {
    const { slope, offset } = fitLine(...examples);
    const numbers = this.tables.hiddenNumbers;
    return numbers.every((x) => evaluate(answer, x) === slope * x + offset);
  }

  isSameProgram(answer, gold) {
    const names = answer.split(" ");
    const areKnown = names.every((name) => Object.hasOwn(OPERATIONS, name));
    if (names.length > 4 || !areKnown) return false;
    const strings = this.tables.hiddenStrings;
    return strings.every((text) => runOperations(answer, text) === runOperations(gold, text));
  }

  /** Whether a plan is the one for this question; null for an ill-formed question. */
  fits(question, plan) {
    const task = this.read(question);
    return task && plan === task.plan;
  }

  /** Whether a question is in the validation or test split, by a checksum. */
  heldOut(question) {
    const choice = question.length <= LONGEST ? question.match(CHOICE) : null;
    return crc32(choice ? choice[1] : question) % 10 < 3;
  }
}

function crc32(text) {
  let remainder = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) {
    remainder ^= byte;
    for (let bit = 0; bit < 8; bit++) {
      remainder = (remainder >>> 1) ^ (remainder & 1 ? 0xedb88320 : 0);
    }
  }
  return ~remainder >>> 0;
}
