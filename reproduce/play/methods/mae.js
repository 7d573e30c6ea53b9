// MAE: one pass of Algorithm 1's loop, as in coevolve/methods/mae. One model proposes, solves and
// judges.

import { meanKnown } from "../arithmetic.js";
import { formatReward, judgeScore, scoreValue, tag } from "../parse.js";
import { ask, belief, ifUnreadable, judging, onAnswer, onQuestion } from "../turns.js";
import { pay, quote, sumOf } from "../turns.js";

const MAE_NEUTRAL = 0.5; // an unreadable judgement
const MAE_QUALITY = 0.7; // a question below it stays out of the pool
const REFERENCE_PROBABILITY = 0.5;

function scoreOrNeutral(score) {
  return score === null ? MAE_NEUTRAL : score;
}

function outOfTen(text) {
  const score = scoreValue(text);
  return score === null ? "no readable score" : `${score} of 10`;
}

/** Return a note on a score without a readable form, or off the scale. */
function ifNoScore(consequence) {
  return (text) => {
    const score = scoreValue(text);
    if (score === null) return `Its form cannot be read: ${consequence}`;
    return score >= 1 && score <= 10 ? null : "Off the scale of 1 to 10: it counts as 0.5.";
  };
}

export class MAE {
  constructor(settings, world) {
    this.settings = settings;
    this.world = world;
  }

  /** Play lines 4 to 22 of Algorithm 1. */
  *episode(rng) {
    const { questions } = this.settings;
    const showsReference = rng.random() < REFERENCE_PROBABILITY;
    const reference = showsReference ? rng.choice(questions) : null;
    const [proposal] = yield {
      part: "The first question: the model makes it up itself.",
      title: "A question",
      note: "The Proposer makes one up. It sees one of the pool, or none.",
      turns: [this.propose(reference)],
    };
    const question = tag(proposal.text, "question");
    const assessment = yield* this.assess(proposal, question);
    const pool = this.mayEnterPool(question, assessment) ? [...questions, question] : questions;

    const task = rng.choice(pool);
    const [reply] = yield {
      part: task === question
        ? "The same question once more: the Solver is now paid for its answer."
        : "Now another question, from the pool: the Solver is paid for its answer.",
      title: "A question of the pool, for pay",
      note: "The Solver answers. Nobody has the right answer.",
      turns: [this.solve(task, "Solver")],
    };
    const pairs = [{ question: task, answer: tag(reply.text, "answer"), reply }];
    const [score] = yield* this.judge(pairs, {
      title: "The Judge decides the pay",
      note: "Its score is the Solver's reward, right or wrong.",
      unpaid: "pays the Solver",
      fallback: ifNoScore("MAE counts it as 0.5, halfway between right and wrong."),
    });
    const readable = pairs.filter((pair) => pair.answer !== null);
    const judgements = yield {
      title: "The Judge, for pay",
      note: "It judges once more and is paid for a readable score, not for a right one.",
      turns: readable.map((pair) =>
        this.score(pair, this.settings.roles.judge_answer, {
          fallback: ifUnreadable(
            scoreValue,
            "Its form cannot be read, and form is all that is paid here.",
          ),
        })),
    };
    return [
      this.payProposer(proposal, assessment),
      this.paySolver(reply, score),
      ...judgements.map((judgement) => this.payJudge(judgement)),
    ];
  }

  propose(reference) {
    const { proposer, proposer_reference } = this.settings.roles;
    const details = {
      speaker: "Proposer",
      proposes: true,
      fallback: ifUnreadable(
        (text) => tag(text, "question"),
        "No question can be read: nobody rates it, nobody tries it.",
      ),
      gist: (text) => `asks ${quote(tag(text, "question"))}`,
      check: (text) => onQuestion(this.world, tag(text, "question")),
    };
    if (reference === null) return ask(proposer, {}, details);
    return ask(proposer_reference, { reference }, details);
  }

  solve(question, speaker, details = {}) {
    return ask(this.settings.roles.solver, { question }, {
      speaker,
      ...details,
      fallback: ifUnreadable(
        (text) => tag(text, "answer"),
        "No answer can be read: the Judge is not asked, and it counts as 0.",
      ),
      gist: (text) => `${quote(question)} → ${tag(text, "answer") ?? "no readable answer"}`,
      check: (text) => onAnswer(this.world, question, tag(text, "answer")),
    });
  }

  rate(proposal, question) {
    return ask(this.settings.roles.question_rater, { question }, {
      speaker: "Judge",
      unpaid: "pays the Proposer",
      fallback: ifNoScore("MAE counts it as 0.5, a middling question."),
      gist: (text) => `the question: ${outOfTen(text)}`,
      ...judging({
        reply: proposal,
        what: "question",
        truth: this.world.valid(question),
        believed: (text) => belief(judgeScore(text)),
        score: outOfTen,
      }),
    });
  }

  score({ question, answer, reply }, role, details) {
    return ask(role, { question, answer }, {
      speaker: "Judge",
      ...details,
      gist: (text) => `${quote(answer)}: ${outOfTen(text)}`,
      ...judging({
        reply,
        what: "answer",
        truth: this.world.isCorrect(question, answer),
        believed: (text) => belief(judgeScore(text)),
        score: outOfTen,
      }),
    });
  }

  /** Have a question judged and attempted (lines 10 and 11); null for none. */
  *assess(proposal, question) {
    if (question === null) return null;
    const attempt = this.solve(question, "Solver, a try", {
      unpaid: "shows how hard it is",
      tries: true,
      many: "tries of the Solver",
      brief: (text) => tag(text, "answer") ?? "nothing readable",
    });
    const [judgement, ...replies] = yield {
      title: "Is it good, is it hard?",
      note: `The Judge rates the question, the Solver tries it ${this.settings.attempts} times.`,
      turns: [this.rate(proposal, question), ...Array(this.settings.attempts).fill(attempt)],
    };
    const pairs = replies.map((reply) => ({
      question,
      answer: tag(reply.text, "answer"),
      reply,
    }));
    const scores = yield* this.judge(pairs, {
      title: "Are the tries right?",
      note: "The worse they look to the Judge, the harder the question counts.",
      unpaid: "counts for the difficulty",
      fallback: ifNoScore("MAE leaves it out of the difficulty."),
      many: "scores of the Judge",
      brief: outOfTen,
    });
    return {
      quality: scoreOrNeutral(judgeScore(judgement.text)),
      difficulty: 1 - scoreOrNeutral(meanKnown(scores)),
    };
  }

  /** Return the Judge's scores; 0 for a pair without an answer, of which it is not asked. */
  *judge(pairs, { title, note, ...details }) {
    const role = this.settings.roles.answer_scorer;
    const answered = pairs.filter((pair) => pair.answer !== null);
    const turns = answered.map((pair) => this.score(pair, role, details));
    const judgements = yield { title, note, turns };
    const texts = judgements.map((judgement) => judgement.text);
    return pairs.map((pair) => (pair.answer === null ? 0 : judgeScore(texts.shift())));
  }

  mayEnterPool(question, assessment) {
    if (assessment === null || assessment.quality < MAE_QUALITY) return false;
    return !this.settings.questions.includes(question) && !this.world.heldOut(question);
  }

  payProposer(proposal, assessment) {
    const { quality, difficulty } = assessment ?? { quality: 0, difficulty: 0 };
    const form = formatReward(proposal.text, "question");
    const terms = [["quality", quality], ["difficulty", difficulty], ["form", form]];
    return pay(proposal, (quality + difficulty + form) / 3, `(${sumOf(terms)}) / 3`);
  }

  paySolver(reply, score) {
    const judged = scoreOrNeutral(score);
    const form = formatReward(reply.text, "answer");
    return pay(reply, (judged + form) / 2, `(${sumOf([["Judge", judged], ["form", form]])}) / 2`);
  }

  payJudge(judgement) {
    return pay(judgement, formatReward(judgement.text, "score"), "for a readable score");
  }
}
