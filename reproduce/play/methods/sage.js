// SAGE: one pass of Algorithm 1's loop, as in coevolve/methods/sage. A verifier, which the
// Challenger writes, decides what is right.

import { meanKnown } from "../arithmetic.js";
import { formatReward, scoreValue, tag, verifierTag } from "../parse.js";
import { ask, belief, ifUnreadable, judging, pay, quote, sumOf } from "../turns.js";
import { onAnswer, onPlan, onQuestion } from "../turns.js";
import { exact, passRate, validTests } from "../verify.js";
import { evaluate, runOperations } from "../world.js";

const SAGE_NEUTRAL = 0.5;
const SAGE_QUALITY = 0.7; // alpha
const PLAN_THRESHOLD = 0.3; // beta
const SILENCE = 0.5; // r_f of an output without text

/** Map the Critic's score to [0, 1] (equation 2). */
function normalized(score) {
  if (score === null) return SAGE_NEUTRAL;
  if (score >= 0 && score < 1) return score;
  return score >= 1 && score <= 10 ? (score - 1) / 9 : SAGE_NEUTRAL;
}

function criticScore(text) {
  return normalized(scoreValue(text));
}

/** Whether the Critic believes in what it scores; null for an unreadable score. */
function readBelief(text) {
  return scoreValue(text) === null ? null : belief(criticScore(text));
}

function outOfTenOrNone(text) {
  return scoreValue(text) === null ? "no readable score" : `${scoreValue(text)} of 10`;
}

/** Return a note on a score that counts as neutral. */
function ifNeutral(consequence) {
  return (text) => {
    const score = scoreValue(text);
    if (score === null) return `Its form cannot be read: SAGE counts it as 0.5, ${consequence}`;
    const isOnScale = score >= 0 && score <= 10;
    return isOnScale ? null : `Off the scale of 1 to 10: it counts as 0.5, ${consequence}`;
  };
}

/** Return r_f, the mean format reward of the required tags. */
function formOf(text, ...tags) {
  if (text.trim() === "") return SILENCE;
  return tags.reduce((sum, name) => sum + formatReward(text, name), 0) / tags.length;
}

export class SAGE {
  constructor(settings, world) {
    this.settings = settings;
    this.world = world;
  }

  /** Play lines 4 to 26 of Algorithm 1. */
  *episode(rng) {
    const { tasks } = this.settings;
    const reference = rng.choice(tasks);
    const [proposal] = yield {
      part: "The first task: the model makes it up itself, with an answer key.",
      title: "A task with its answer key",
      note: "The Challenger reads a known task and its key, and writes both anew.",
      turns: [this.propose(reference)],
    };
    const challenge = yield* this.challenge(proposal, readTask(proposal.text));
    const pool = this.mayEnterDataset(challenge) ? [...tasks, challenge.task] : tasks;
    const task = rng.choice(pool);
    const part = task === challenge.task
      ? "The same task once more, now with a plan and for pay."
      : "Now another task, from the dataset, with a plan and for pay.";
    const plan = yield* this.plan(task.question, part);
    const [reply] = yield {
      title: "The answer",
      note: "The Solver reads the plan if its score is at least 0.3. The key decides its pay.",
      turns: [this.solve(task, plan)],
    };
    const payments = [this.payChallenger(proposal, challenge), this.payPlanner(plan)];
    payments.push(this.paySolver(reply, task, plan));
    const judgements = [challenge.judgement, plan.judgement];
    for (const judgement of judgements) {
      if (judgement) payments.push(this.payCritic(judgement));
    }
    return payments;
  }

  propose({ question, kind, verifier }) {
    return ask(this.settings.roles.challenger, { reference: question, type: kind, verifier }, {
      speaker: "Challenger",
      proposes: true,
      gist: (text) => {
        const task = readTask(text);
        return `asks ${quote(task.question)}, key ${quote(task.verifier)}`;
      },
      check: (text) => this.checkTask(readTask(text)),
    });
  }

  checkTask({ question, kind, verifier }) {
    const verdict = onQuestion(this.world, question);
    if (!verdict.ok) return verdict;
    if (verifier === null) return { ok: false, text: "no readable answer key" };
    const { answer } = this.world.read(question);
    if (this.isSound(question, kind, verifier)) return { ok: true, text: "its key is right" };
    return { ok: false, text: `its key is wrong, the answer is ${answer}` };
  }

  /** Whether a verifier accepts the oracle's answer to a well-formed question. */
  isSound(question, kind, verifier) {
    if (kind === "math") return this.world.isCorrect(question, verifier);
    const { family, answer } = this.world.read(question);
    const expectedTest = (input) =>
      family === "code"
        ? `assert f(${input})==${evaluate(answer, Number(input))}`
        : `assert g("${input}")=="${runOperations(answer, input)}"`;
    if (family !== "code" && family !== "ops") return false;
    const tests = verifier.split("\n").map((line) => line.trim()).filter((line) => line !== "");
    return tests.every((test) => test === expectedTest(test.match(/\d+/)?.[0] ?? ""));
  }

  /** Have a task judged and attempted (lines 6 to 9). */
  *challenge(proposal, task) {
    if (task.question === null) return { task, quality: 0, accepted: false, judgement: null };
    const valid = isCompleteTask(task) && (task.kind === "math" || validTests(task.verifier));
    const attempt = this.attempt(task);
    const count = valid ? this.settings.attempts : 0;
    const [judgement, ...attempts] = yield {
      title: "Is it good, is it hard?",
      note: valid
        ? `The Critic rates it; ${count} tries without the key show how hard it is.`
        : "The Critic rates it. Its key can judge nothing, so nobody tries it.",
      turns: [this.judgeQuestion(proposal, task.question), ...Array(count).fill(attempt)],
    };
    const quality = criticScore(judgement.text);
    const rate = meanKnown(attempts.map((reply) => this.verify(task, reply.text)));
    const accepted = valid && quality >= SAGE_QUALITY;
    return { task, quality, accepted, judgement, difficulty: rate === null ? null : 1 - rate };
  }

  attempt(task) {
    return ask(this.settings.roles.solver, { question: task.question }, {
      speaker: "Solver, a try",
      unpaid: "shows how hard it is",
      tries: true,
      many: "tries of the Solver",
      brief: (text) => tag(text, "answer") ?? "nothing readable",
      key: (text) => this.askKey(task, text),
      gist: (text) => this.gistOfTry(task, text),
      check: (text) => onAnswer(this.world, task.question, tag(text, "answer")),
    });
  }

  gistOfTry(task, text) {
    const answer = tag(text, "answer") ?? "no readable answer";
    return `${answer}, ${this.verify(task, text) ? "as" : "not as"} the key says`;
  }

  judgeQuestion(proposal, question) {
    return ask(this.settings.roles.critic_question, { question }, {
      speaker: "Critic",
      fallback: ifNeutral("too little for the dataset."),
      gist: (text) => `the question: ${outOfTenOrNone(text)}`,
      ...judging({
        reply: proposal,
        what: "question",
        truth: this.world.valid(question),
        believed: readBelief,
        score: outOfTenOrNone,
      }),
    });
  }

  mayEnterDataset({ task, accepted }) {
    if (!accepted || this.world.heldOut(task.question)) return false;
    const keys = ["question", "kind", "verifier"];
    const isSame = (known) => keys.every((key) => known[key] === task[key]);
    return !this.settings.tasks.some(isSame);
  }

  /** Ask for a plan and have one that parses judged (lines 15 to 17). */
  *plan(question, part) {
    const [reply] = yield {
      part,
      title: "A plan",
      note: "A task of the dataset is drawn. The Planner reads the question, never the key.",
      turns: [this.askPlan(question)],
    };
    const text = tag(reply.text, "plan");
    const [judgement = null] = yield {
      title: "Is the plan good?",
      note: "The Critic's score pays the Planner and opens the gate to the Solver.",
      turns: text === null ? [] : [this.judgePlan(reply, question, text)],
    };
    const score = judgement === null ? 0 : criticScore(judgement.text);
    return { reply, text, judgement, score, used: score >= PLAN_THRESHOLD ? text : null };
  }

  askPlan(question) {
    return ask(this.settings.roles.planner, { question }, {
      speaker: "Planner",
      fallback: ifUnreadable(
        (text) => tag(text, "plan"),
        "No plan can be read: the Critic is not asked, and the Solver gets none.",
      ),
      gist: (text) => `${quote(question)} → ${quote(tag(text, "plan"))}`,
      check: (text) => onPlan(this.world, question, tag(text, "plan")),
    });
  }

  judgePlan(reply, question, plan) {
    return ask(this.settings.roles.critic_plan, { question, plan }, {
      speaker: "Critic",
      fallback: ifNeutral("enough for the Solver to read the plan."),
      gist: (text) => `the plan: ${outOfTenOrNone(text)}`,
      ...judging({
        reply,
        what: "plan",
        truth: this.world.fits(question, plan),
        believed: readBelief,
        score: outOfTenOrNone,
      }),
    });
  }

  solve(task, plan) {
    const { solver, solver_planned } = this.settings.roles;
    const { question } = task;
    const details = {
      speaker: "Solver",
      key: (text) => this.askKey(task, text),
      gist: (text) => `${quote(question)} → ${tag(text, "answer") ?? "no readable answer"}`,
      check: (text) => onAnswer(this.world, question, tag(text, "answer")),
    };
    if (plan.used === null) return ask(solver, { question }, details);
    return ask(solver_planned, { question, plan: plan.used }, details);
  }

  /** Return V_gt: 1 or 0 in mathematics, the pass rate of a program's tests. */
  verify({ question, kind, verifier }, text) {
    const answer = tag(text, "answer");
    if (answer === null) return 0;
    if (kind === "code") return passRate(question, answer, verifier);
    return Number(exact(answer, verifier));
  }

  /** Return what the answer key says of a reply, which is right only as far as the key is. */
  askKey(task, text) {
    const rate = this.verify(task, text);
    if (rate > 0 && rate < 1) return { ok: false, text: `right in ${Math.round(100 * rate)} %` };
    return { ok: rate === 1, text: rate === 1 ? "right" : "wrong" };
  }

  payChallenger(proposal, { task, quality, accepted, difficulty }) {
    const form = formOf(proposal.text, "question", "type", verifierTag(task.kind) ?? "answer");
    if (!accepted || difficulty === null) {
      const terms = [["Critic", quality], ["form", form]];
      return pay(proposal, (quality + form) / 2, `(${sumOf(terms)}) / 2, not accepted`);
    }
    const terms = [["Critic", quality], ["difficulty", difficulty], ["form", form]];
    return pay(proposal, (quality + difficulty + form) / 3, `(${sumOf(terms)}) / 3`);
  }

  payPlanner({ reply, score }) {
    const form = formOf(reply.text, "plan");
    const terms = [["Critic", score], ["form", form]];
    return pay(reply, 0.5 * score + 0.5 * form, `(${sumOf(terms)}) / 2`);
  }

  paySolver(reply, task, plan) {
    const form = formOf(reply.text, "answer");
    const planTerm = plan.score >= PLAN_THRESHOLD ? plan.score : 0;
    const correct = this.verify(task, reply.text);
    const why = `20 % plan ${planTerm.toFixed(2)}, 60 % key ${correct}, 20 % form ${form}`;
    return pay(reply, 0.2 * planTerm + 0.6 * correct + 0.2 * form, why);
  }

  payCritic(judgement) {
    return pay(judgement, formOf(judgement.text, "score"), "for a readable score");
  }
}

function readTask(text) {
  const kind = tag(text, "type");
  const name = kind === null ? null : verifierTag(kind);
  return {
    question: tag(text, "question"),
    kind: name === null ? null : kind,
    verifier: name === null ? null : tag(text, name),
  };
}

function isCompleteTask({ question, kind, verifier }) {
  return question !== null && kind !== null && verifier !== null;
}
