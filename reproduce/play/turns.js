// What methods yield and return.
//
// A method's episode is a generator. It yields waves {title, note, turns}, receives the replies to
// the turns, {turn, text}, and returns payments {reply, reward, why}; a reward of null is masked.
// A wave that begins another part of the episode has a `part`, which says what begins.

import { amount } from "./arithmetic.js";

const FIELD = /\{([a-z_][a-z0-9_]*)\}/g;

/**
 * Ask a role; the fields fill its prompt in one pass, so that braces in a value stay.
 *
 * `details` are for the page: the `speaker`, `gist(text)` in a few words, `check(text)`, which asks
 * the oracle, and `unpaid`, why a reply earns nothing. `policy` names the weights that speak.
 * Only some turns have:
 *
 * - `fallback(text)`: what the method does with a reply whose form it cannot read; null for others
 * - `key(text)`: {ok, text}, what the model's own answer key says of the reply
 * - `topic`: the question that the turn is about, where a wave has several
 * - `many` and `brief(text)`: such replies by name, and what one says, for a line about several
 * - `proposes` or `tries`: whether the turn makes up a question, or tries one
 * - what `judging` returns
 */
export function ask(role, fields, details) {
  const prompt = role.prompt.replace(FIELD, (_, name) => String(fields[name]));
  return { role: role.name, prompt, temperature: role.temperature, policy: "shared", ...details };
}

/** Return a payment for a reply. */
export function pay(reply, reward, why) {
  return { reply, reward, why };
}

/** Write terms of a reward such as [["quality", 0.89], ["form", 1]] as a sum. */
export function sumOf(terms) {
  return terms.map(([name, value]) => `${name} ${amount(value)}`).join(" + ");
}

// What the oracle says: {ok, text}, with ok null where it has no opinion. `more`, where there is
// any, would tell too much to those who guess.

export function onQuestion(world, question) {
  if (question === null) return { ok: false, text: "no readable question" };
  const task = world.read(question);
  if (task === null) return { ok: false, text: "not a question of this world" };
  return { ok: true, text: "a real question", more: `the answer is ${task.answer}` };
}

export function onAnswer(world, question, answer) {
  const task = world.read(question);
  if (task === null) return { ok: null, text: "no right answer: not a real question" };
  if (world.isCorrect(question, answer)) return { ok: true, text: "right" };
  const fault = answer === null ? "no readable answer" : "wrong";
  return { ok: false, text: `${fault}, it is ${task.answer}` };
}

export function onPlan(world, question, plan) {
  const task = world.read(question);
  if (task === null) return { ok: null, text: "no plan fits: not a real question" };
  if (plan === task.plan) return { ok: true, text: "the right plan" };
  return { ok: false, text: `wrong plan, it is “${task.plan}”` };
}

// What a judge calls something that it doubts, and something that it believes.
const BELIEF_WORDS = {
  question: ["not a real question", "a real question"],
  plan: ["a wrong plan", "the right plan"],
  answer: ["wrong", "right"],
  solution: ["wrong", "right"],
};

/**
 * Return the details of a turn that judges a reply; `what` is a key of BELIEF_WORDS.
 *
 * `truth` is the oracle's, true, false or null; `believed(text)` is the judge's, likewise;
 * `score(text)` is what the judge gives, in words, unless it speaks plainly.
 */
export function judging({ reply, what, truth, believed, score }) {
  const words = BELIEF_WORDS[what];
  return {
    judges: reply,
    truth: truth === null ? null : words[Number(truth)],
    check: (text) => onBelief(believed(text), truth, what),
    says: (text) => {
      const isBelieved = believed(text);
      const terms = [isBelieved === null ? null : words[Number(isBelieved)], score?.(text)];
      const [first = quote(text), second] = terms.filter(Boolean);
      return second ? `${first} (${second})` : first;
    },
  };
}

/** Compare a belief with the truth; either is null where there is none. */
function onBelief(believed, truth, what) {
  if (believed === null || truth === null) return null;
  const verb = believed ? "believes" : "doubts";
  const kinds = what === "question" ? ["broken", "real"] : ["wrong", "right"];
  return { ok: believed === truth, text: `${verb} a ${kinds[Number(truth)]} ${what}` };
}

/** Whether a score in [0, 1] believes what it scores; null for an unreadable one. */
export function belief(score) {
  return score === null ? null : score > 0.5;
}

/** Return a `fallback`: what a method does with a text in which `read` finds nothing. */
export function ifUnreadable(read, note) {
  return (text) => (read(text) === null ? note : null);
}

export function quote(text) {
  return text === null ? "nothing readable" : `“${text}”`;
}
