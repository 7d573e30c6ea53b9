// SPICE: one document, as in coevolve/methods/spice. A Challenger asks about it, a Reasoner
// answers without it.

import { amount, meanKnown } from "../arithmetic.js";
import { jsonObject } from "../json.js";
import { boxed, offersAlternatives } from "../parse.js";
import { ask, ifUnreadable, onAnswer, pay, quote } from "../turns.js";
import { choice, exact, near } from "../verify.js";

const MCQ = "MCQ";
const OPTION_LETTERS = "ABCD";
const ANSWER_TYPES = ["Integer", "Float", "Expression", "String", "Boolean", "List"];
const NUMBERS = {
  Integer: /^[+-]?[0-9]{1,60}$/,
  Float: /^[+-]?[0-9]{1,60}(?:\.[0-9]{1,60})?$/,
};
const BOOLEANS = ["yes", "no"];
const MAX_STRING_WORDS = 3;
const MAX_ANSWER_CHARACTERS = 512;
const OPTION_LINE = /^[ \t]*([A-Z])\)/gm;
const OPTION_MARK = /(?<![A-Za-z0-9])([A-Z])\)/g;
const PARENTHESES = /\([^()\n]*\)/g;
const WORDS_OF_TEXT = /[\p{L}\p{N}_]+/gu;
const PENALTY = -0.1; // rho
const OPTIMUM = 0.25; // the variance of a task that is solved half of the time
const TAU = 0.01;
const FAULTS = {
  json: "no readable task",
  declined: "no question",
  question: "no question",
  answer: "no readable answer key",
  type: "an answer key of another type",
  document: "it mentions the document",
  leak: "it gives its answer away",
  options: "not four options",
  letter: "no letter as its key",
};

export class SPICE {
  constructor(settings, world) {
    this.settings = settings;
    this.world = world;
    this.documentReference = new RegExp(settings.documentReference, "i");
  }

  /** Play lines 5 to 20 of Algorithm 1. */
  *episode(rng) {
    const corpus = rng.choice(this.settings.corpora);
    const document = rng.choice(corpus);
    const kind = yield* this.chooseKind(document, rng);
    const attempts = yield* this.challenge(document, kind);
    const kept = subsample(attempts, this.settings.group, rng);
    const tasks = kept.filter(({ task }) => task).map(({ task }) => task);
    const answered = yield* this.answer(tasks);
    const payments = this.payChallenger(kept, answered);
    const candidates = answered.filter(({ task }) => !this.isHeldOut(task));
    const chosen = candidates.length ? rng.choice(candidates) : null;
    if (chosen) payments.push(...payReasoner(chosen));
    return payments;
  }

  /** Ask which kind of task suits a document; an unreadable choice is made at random. */
  *chooseKind(document, rng) {
    const [reply] = yield {
      part: "First with a document: the Challenger reads it and makes up questions.",
      title: "A document",
      note: "The Challenger reads it and chooses a kind of question.",
      turns: [
        ask(this.settings.roles.select, { document }, {
          speaker: "Challenger",
          unpaid: "only chooses the kind",
          fallback: ifUnreadable(
            readFormat,
            "Its form cannot be read: the kind of question is drawn at random.",
          ),
          gist: (text) => `chooses: ${nameOfKind(readFormat(text))}`,
          check: () => null,
        }),
      ],
    };
    const kind = readFormat(reply.text);
    if (kind !== null) return kind;
    return rng.random() < 0.5 ? MCQ : rng.choice(ANSWER_TYPES);
  }

  /** Make attempts, a group at a time, until one is valid (line 6). */
  *challenge(document, kind) {
    const { group } = this.settings;
    const attempts = [];
    while (attempts.length < this.settings.attempts && !attempts.some(({ task }) => task)) {
      const replies = yield {
        title: attempts.length ? "Once more" : "Questions about the document",
        note: `The Challenger reads the document and makes ${group} attempts, each with a key.`,
        turns: Array(group).fill(this.challengerTurn(document, kind)),
      };
      attempts.push(...replies.map((reply) => ({ reply, ...this.readTask(reply.text, kind) })));
    }
    return attempts;
  }

  challengerTurn(document, kind) {
    const { ask_mcq, ask_free } = this.settings.roles;
    const details = {
      speaker: "Challenger",
      unpaid: "not among those kept",
      proposes: true,
      many: "attempts of the Challenger",
      brief: (text) => {
        const { task, fault } = this.readTask(text, kind);
        return task ? quote(task.text) : FAULTS[fault];
      },
      gist: (text) => {
        const { task } = this.readTask(text, kind);
        return task ? `asks ${quote(task.text)}, key ${quote(task.gold)}` : "no valid task";
      },
      check: (text) => this.checkTask(this.readTask(text, kind)),
    };
    if (kind === MCQ) return ask(ask_mcq, { document }, details);
    return ask(ask_free, { document, answer_type: kind }, details);
  }

  checkTask({ task, fault }) {
    if (!task) return { ok: false, text: FAULTS[fault] };
    const known = this.world.read(task.text);
    if (known === null) return { ok: false, text: "not a question of this world" };
    if (this.world.isCorrect(task.text, task.gold)) return { ok: true, text: "its key is right" };
    return { ok: false, text: `its key is wrong, the answer is ${known.answer}` };
  }

  /** Ask each distinct task `group` times, without the document (line 9). */
  *answer(tasks) {
    const { group, roles } = this.settings;
    const distinct = [];
    for (const task of tasks) {
      if (!distinct.some((other) => isSameTask(other, task))) distinct.push(task);
    }
    const repeated = distinct.flatMap((task) => Array(group).fill(task));
    const replies = yield {
      part: "Now without the document: the Reasoner sees the questions alone.",
      title: "Answers without the document",
      note: `The Reasoner sees the question alone, ${group} times each. The key decides.`,
      turns: repeated.map((task) => this.reasonerTurn(roles.solver, task)),
    };
    const answers = replies.map((reply, i) => {
      return { reply, correct: verify(repeated[i], reply.text) };
    });
    return tasks.map((task) => {
      const place = distinct.findIndex((other) => isSameTask(other, task));
      return { task, answers: answers.slice(place * group, (place + 1) * group) };
    });
  }

  reasonerTurn(role, task) {
    return ask(role, { question: task.text }, {
      speaker: "Reasoner",
      unpaid: "shows how hard it is",
      tries: true,
      topic: task.text,
      many: "answers of the Reasoner",
      brief: (text) => boxed(text) ?? "nothing readable",
      key: (text) => {
        const ok = verify(task, text);
        return { ok, text: ok ? "right" : "wrong" };
      },
      gist: (text) => `${quote(task.text)} → ${boxed(text) ?? "no readable answer"}`,
      check: (text) => onAnswer(this.world, task.text, boxed(text)),
    });
  }

  payChallenger(kept, answered) {
    const remaining = [...answered];
    return kept.map(({ reply, task, fault }) => {
      if (!task) return pay(reply, PENALTY, `invalid: ${FAULTS[fault]}`);
      const rate = meanKnown(remaining.shift().answers.map(({ correct }) => correct));
      const distance = rate * (1 - rate) - OPTIMUM;
      const reward = Math.exp(-(distance * distance) / (2 * TAU));
      return pay(reply, reward, `${amount(100 * rate).replace(".00", "")} % answered as its key`);
    });
  }

  /** Whether a task is a validation or test question, which never trains a Reasoner. */
  isHeldOut(task) {
    const split = task.kind === MCQ ? splitOptions(task.text) : null;
    const questions = [task.text, split ? split.stem : task.text];
    return questions.some((text) => this.world.valid(text) && this.world.heldOut(text));
  }

  // Reading.

  readTask(text, kind) {
    return kind === MCQ ? this.readChoice(text) : this.readFree(text, kind);
  }

  readFree(text, kind) {
    const fields = jsonObject(text) ?? new Map();
    const fault = questionFault(fields, "question", "answer");
    if (fault !== null) return { fault };
    const question = fields.get("question").trim();
    const gold = scalar(fields.get("answer"));
    if (gold === null) return { fault: "answer" };
    if (fields.get("answer_type") !== kind || !fitsType(gold, kind)) return { fault: "type" };
    if (this.documentReference.test(question)) return { fault: "document" };
    if (kind === "String" && givesAway(question, gold)) return { fault: "leak" };
    return { task: { text: question, gold, kind } };
  }

  readChoice(text) {
    const fields = jsonObject(text) ?? new Map();
    const keys = ["multiple_choice_question", "multiple_choice_correct"];
    const fault = questionFault(fields, ...keys);
    if (fault !== null) return { fault };
    const [question, letter] = keys.map((key) => fields.get(key));
    if (splitOptions(question.trim()) === null) return { fault: "options" };
    const isLetter = typeof letter === "string" && /^[ABCD]$/.test(letter.trim());
    if (!isLetter) return { fault: "letter" };
    if (this.documentReference.test(question)) return { fault: "document" };
    return { task: { text: question.trim(), gold: letter.trim(), kind: MCQ } };
  }
}

function isSameTask(one, other) {
  return one.text === other.text && one.gold === other.gold && one.kind === other.kind;
}

/** Draw attempts that keep the ratio of valid to invalid ones (line 7); they keep their order. */
function subsample(attempts, size, rng) {
  if (attempts.length <= size) return attempts;
  const places = [...attempts.keys()];
  const valid = places.filter((i) => attempts[i].task);
  const invalid = places.filter((i) => !attempts[i].task);
  let count = Math.floor((size * valid.length) / attempts.length + 0.5);
  count = Math.max(count, size - invalid.length);
  if (valid.length) count = Math.max(count, 1);
  const kept = [...rng.sample(valid, count), ...rng.sample(invalid, size - count)];
  return kept.sort((a, b) => a - b).map((i) => attempts[i]);
}

function payReasoner({ answers }) {
  return answers.map(({ reply, correct }) =>
    pay(reply, Number(correct), correct ? "what the key says" : "not what the key says"));
}

function verify(task, text) {
  const answer = boxed(text);
  if (task.kind === MCQ) return choice(answer, task.gold);
  const isNumber = task.kind === "Integer" || task.kind === "Float";
  return isNumber ? near(answer, task.gold) : exact(answer, task.gold);
}

/** Read a format selection: MCQ or an answer type; null if it is unreadable. */
function readFormat(text) {
  const fields = jsonObject(text);
  if (fields === null) return null;
  const isChoice = fields.get("suitable_for_mcq");
  const isFree = fields.get("suitable_for_free_form");
  const areBoolean = typeof isChoice === "boolean" && typeof isFree === "boolean";
  if (!areBoolean || isChoice === isFree) return null;
  const type = fields.get("best_answer_type") ?? null;
  if (type !== null && !ANSWER_TYPES.includes(type)) return null;
  return isChoice ? MCQ : (type ?? "String");
}

function nameOfKind(kind) {
  if (kind === null) return "nothing readable";
  return kind === MCQ ? "multiple choice" : `an answer of type ${kind}`;
}

function questionFault(fields, questionKey, answerKey) {
  if (!fields.has(questionKey) || !fields.has(answerKey)) return "json";
  const question = fields.get(questionKey);
  if (typeof question !== "string") return "question";
  return question.trim() === "" ? "declined" : null;
}

/** Write a JSON string, number or boolean as text; null for anything else and for blanks. */
function scalar(value) {
  if (typeof value === "boolean" || typeof value === "number") return String(value);
  return typeof value === "string" ? value.trim() || null : null;
}

function fitsType(gold, kind) {
  if (gold.length > MAX_ANSWER_CHARACTERS || gold.includes("\n")) return false;
  if (boxed(`\\boxed{${gold}}`) === null || offersAlternatives(gold)) return false;
  if (Object.hasOwn(NUMBERS, kind)) return NUMBERS[kind].test(gold);
  if (kind === "Boolean") return BOOLEANS.includes(gold);
  if (kind === "String") return gold.split(/\s+/).length <= MAX_STRING_WORDS;
  return ANSWER_TYPES.includes(kind);
}

/** Whether a question contains the words of its answer, in their order. */
function givesAway(question, gold) {
  const wordsOf = (text) => text.toLowerCase().match(WORDS_OF_TEXT) ?? [];
  const words = wordsOf(question);
  const goldWords = wordsOf(gold);
  if (goldWords.length === 0) return false;
  return ` ${words.join(" ")} `.includes(` ${goldWords.join(" ")} `);
}

/** Split "stem A) .. B) .. C) .. D) .." into {stem, options}; null for any other form. */
function splitOptions(question) {
  for (const marks of readingsOfMarks(question)) {
    const letters = marks.map((mark) => mark[1]).join("");
    if (letters === OPTION_LETTERS) return splitAt(marks, question);
  }
  return null;
}

function readingsOfMarks(question) {
  const marks = [...question.matchAll(OPTION_MARK)];
  const endOf = (match) => match.index + match[0].length;
  const closings = new Set([...question.matchAll(PARENTHESES)].map(endOf));
  const outside = marks.filter((mark) => !closings.has(endOf(mark)));
  return [[...question.matchAll(OPTION_LINE)], outside, marks];
}

function splitAt(marks, question) {
  const stem = question.slice(0, marks[0].index).trim();
  const options = marks.map((mark, i) => {
    const end = marks[i + 1]?.index ?? question.length;
    return question.slice(mark.index + mark[0].length, end).trim();
  });
  const distinct = new Set(options.map((option) => option.toLowerCase()));
  if (!stem || distinct.size < options.length || distinct.has("")) return null;
  return { stem, options };
}
