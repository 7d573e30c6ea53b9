// CoMAS: agents discuss a question, as in coevolve/methods/comas. What a solution wins, its
// evaluation loses.

import { meanKnown } from "../arithmetic.js";
import { boxed, only } from "../parse.js";
import { ask, ifUnreadable, judging, onAnswer, pay } from "../turns.js";

const VERDICT_TAG = /<\/?(?:score|judgment)>/g;
const BLOCK_TAG = /<(\/?(?:question|solution|evaluation|score|judgment)>)/g;
const SCORES = { 1: 1, 2: 2, 3: 3 };
const SAID_RIGHT_OR_WRONG = /: (right|wrong)$/;

/** Return a reply as other agents read it: it cannot close the block that it stands in. */
function quotedReply(reply) {
  return reply.text.replace(VERDICT_TAG, "").replace(BLOCK_TAG, "&lt;$1");
}

function extractScore(text) {
  const content = only(text, "score").replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, "");
  return SCORES[content] ?? null;
}

export class CoMAS {
  constructor(settings, world) {
    this.settings = settings;
    this.world = world;
  }

  /** Discuss one question; a round is a solution, its evaluation and a scoring (Eqs. 3 to 8). */
  *episode(rng) {
    const { questions, rounds, horizon } = this.settings;
    const question = rng.choice(questions);
    const discussion = [];
    const payments = [];
    for (let round = 1; round <= rounds; round++) {
      const history = writeDiscussion(discussion.slice(-horizon));
      const [solution] = yield {
        part: round === 1
          ? `Round 1: all rounds are about one question, “${question}”.`
          : `Round ${round}: the same question. The agents now read what was said before.`,
        title: "A solution",
        note: "An agent drawn at random reads the question and the rounds before.",
        turns: [this.solve(rng, question, history)],
      };
      const [evaluation] = yield {
        title: "An evaluation",
        note: "An agent drawn at random looks for mistakes. It is paid what the solution loses.",
        turns: [this.evaluate(rng, question, history, solution)],
      };
      const [scoring] = yield {
        title: "The score decides",
        note: "3 pays the solution, 1 pays the evaluation. Nobody has the right answer.",
        turns: [this.score(rng, question, solution, evaluation)],
      };
      discussion.push({ solution: quotedReply(solution), evaluation: quotedReply(evaluation) });
      payments.push(...this.payRound(solution, evaluation, scoring));
    }
    return payments;
  }

  /** Let any agent play a role, the author of the solution included. */
  ask(rng, role, fields, details) {
    const policy = rng.choice(this.settings.policies);
    const speaker = `Agent ${policy.replace("agent_", "")}`;
    return ask(role, fields, { ...details, policy, speaker });
  }

  solve(rng, problem, discussion) {
    return this.ask(rng, this.settings.roles.solution, { problem, discussion }, {
      gist: (text) => `“${problem}” → ${boxed(text) ?? "no readable answer"}`,
      check: (text) => onAnswer(this.world, problem, boxed(text)),
    });
  }

  evaluate(rng, problem, discussion, solution) {
    const fields = { problem, discussion, solution: quotedReply(solution) };
    const truth = this.world.isCorrect(problem, boxed(solution.text));
    return this.ask(rng, this.settings.roles.evaluation, fields, {
      gist: (text) => `evaluates: “${text}”`,
      ...judging({
        reply: solution,
        what: "solution",
        truth,
        believed: (text) => {
          const word = text.match(SAID_RIGHT_OR_WRONG)?.[1] ?? null;
          return word && word === "right";
        },
      }),
    });
  }

  score(rng, problem, solution, evaluation) {
    const fields = {
      problem,
      solution: quotedReply(solution),
      evaluation: quotedReply(evaluation),
    };
    const truth = this.world.isCorrect(problem, boxed(solution.text));
    return this.ask(rng, this.settings.roles.scoring, fields, {
      gist: (text) => `scores it ${extractScore(text) ?? "unreadably"} of 3`,
      fallback: ifUnreadable(
        extractScore,
        "Its form cannot be read: nothing but itself is trained on, and it earns −1.",
      ),
      ...judging({
        reply: solution,
        what: "solution",
        truth,
        believed: (text) => {
          const score = extractScore(text);
          return score === null || score === 2 ? null : score === 3;
        },
        score: (text) => {
          const score = extractScore(text);
          return score === null ? "no readable score" : `${score} of 3`;
        },
      }),
    });
  }

  payRound(solution, evaluation, scoring) {
    const score = extractScore(scoring.text);
    const solutionReward = meanKnown([score === null ? null : (score - 1) / 2]);
    const evaluationReward = score === null ? null : (3 - score) / 2;
    const why = score === null ? "no readable score, so not trained on" : `score ${score}`;
    return [
      pay(solution, solutionReward, score === null ? why : `(${why} − 1) / 2`),
      pay(evaluation, evaluationReward, score === null ? why : `(3 − ${why}) / 2`),
      pay(scoring, score === null ? -1 : 0, "0 for any readable score, else −1"),
    ];
  }
}

function writeDiscussion(rounds) {
  return rounds
    .map(({ solution, evaluation }) =>
      [`<solution>${solution}</solution>`, `<evaluation>${evaluation}</evaluation>`].join("\n"))
    .join("\n");
}
