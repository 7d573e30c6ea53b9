// CoNL: personas propose, rank and criticise, revise, and rank again, as in coevolve/methods/conl.

import { amount } from "../arithmetic.js";
import { answerLine, filled, only, pairedTags, tag, tagPairs } from "../parse.js";
import { ask, ifUnreadable, onAnswer, pay } from "../turns.js";

const CONL_BLOCK =
  /<(?=\/?(?:solution|critique|question|initial_ranking|final_ranking)\b)/g;
const AGENT = "Agent (0|[1-9][0-9]{0,2})";
const CHAIN = new RegExp(
  `^(?:(?:[-*•]|[0-9]{1,3}[.)])[ \\t]+)?${AGENT}(?:[ \\t]*[<>=][ \\t]*${AGENT})+$`,
);
const CRITIQUE_TAG = /<critique(?:[ \t\n][^<>]*)?>|<\/critique>/g;
const OPENING = new RegExp(`^<critique target="${AGENT}">$`);
const MIRRORED = { "<": ">", ">": "<", "=": "=" };
const SWEEPS = 1000;
const CONVERGED = 1e-14;

function quotedText(text) {
  return text.replace(CONL_BLOCK, "&lt;");
}

function writeSolutions(texts) {
  return texts.map((text, agent) => `Agent ${agent}<solution>${text}</solution>`).join("\n");
}

/** Return an answer for the page: the answer line, or that there is none. */
function answerIn(text) {
  return answerLine(text) ?? "no readable answer";
}

export class CoNL {
  constructor(settings, world) {
    this.settings = settings;
    this.world = world;
  }

  /** Hold one conversation of four rounds (Algorithm 1). */
  *episode(rng) {
    const { personas } = this.settings;
    const question = rng.choice(this.settings.questions);
    const proposals = yield {
      part: `Round 0: one question for all, “${question}”.`,
      title: "Four proposals",
      note: "Four personas of one model answer the same question, each alone.",
      turns: personas.map((_, agent) => this.propose(question, agent)),
    };
    const initial = proposals.map((reply) => quotedText(reply.text));
    const reviews = yield {
      part: "Round 1: the agents now read one another's answers.",
      title: "Blind rankings and critiques",
      note: "Each agent ranks the others and criticises some. Nobody sees another's ranking.",
      turns: personas.map((_, agent) => this.review(question, agent, initial)),
    };
    const critiques = reviews.map((reply, agent) => this.readCritiques(reply.text, agent));
    const revisions = yield {
      part: "Round 2: each agent may now change its answer.",
      title: "Revisions",
      note: "Each agent reads its own solution and the critiques of it.",
      turns: personas.map((_, agent) =>
        this.revise(question, agent, initial[agent], critiquesOf(critiques, agent))),
    };
    const revised = revisions.map(
      (reply, agent) => tag(reply.text, "revised_solution") ?? proposals[agent].text,
    );
    const verdicts = yield {
      part: "Round 3: the changed answers are compared once more, now for pay.",
      title: "Final rankings",
      note: "All rank again. Rankings pay the solutions; agreeing with the others pays a ranking.",
      turns: personas.map((_, agent) => this.rank(question, agent, revised.map(quotedText))),
    };
    const before = this.readRankings(reviews, "initial_ranking");
    const after = this.readRankings(verdicts, "final_ranking");
    const scores = { before: agentScores(before), after: agentScores(after) };
    return personas.flatMap((_, agent) => {
      const own = [proposals, reviews, revisions, verdicts].map((replies) => replies[agent]);
      return this.payAgent(agent, own, critiques[agent], scores, after);
    });
  }

  // Turns.

  ask(role, agent, fields, details) {
    const persona = this.settings.personas[agent];
    const speaker = `Agent ${agent}, ${persona}`;
    return ask(role, { persona, ...fields }, { speaker, ...details });
  }

  propose(query, agent) {
    return this.ask(this.settings.roles.proposal, agent, { query }, {
      gist: (text) => `“${query}” → ${answerIn(text)}`,
      check: (text) => onAnswer(this.world, query, answerLine(text)),
    });
  }

  review(query, agent, shown) {
    const fields = { agent, query, solutions: writeSolutions(shown) };
    return this.ask(this.settings.roles.review, agent, fields, {
      gist: (text) => {
        const targets = this.readCritiques(text, agent).map(({ target }) => target);
        return targets.length ? `criticises agent ${targets.join(" and ")}` : "criticises nobody";
      },
      fallback: (text) => {
        if (this.readRanking(text, "initial_ranking", agent).length) return null;
        return "No ranking can be read: this agent has no vote in this round.";
      },
      check: () => null,
    });
  }

  revise(query, agent, solution, received) {
    const critiques = received.map((text) => `<critique>${text}</critique>`).join("\n");
    return this.ask(this.settings.roles.revision, agent, { query, solution, critiques }, {
      fallback: ifUnreadable(
        (text) => tag(text, "revised_solution"),
        "No revision can be read: the proposal stands, and this reply is not trained on.",
      ),
      gist: (text) => {
        const revised = tag(text, "revised_solution");
        if (revised === null) return "nothing readable, so the proposal stands";
        const isKept = answerLine(revised) === answerLine(solution);
        return `${isKept ? "keeps" : "changes to"} ${answerIn(revised)}`;
      },
      check: (text) => {
        const revised = tag(text, "revised_solution") ?? solution;
        return onAnswer(this.world, query, answerLine(revised));
      },
    });
  }

  rank(query, agent, shown) {
    const fields = { agent, query, solutions: writeSolutions(shown) };
    return this.ask(this.settings.roles.verdict, agent, fields, {
      fallback: (text) => {
        if (this.readRanking(text, "final_ranking", agent).length) return null;
        const consequence = hasOneRanking(text) ? "earns 0" : "is not trained on";
        return `No ranking can be read: this agent has no vote, and its ranking ${consequence}.`;
      },
      gist: (text) => {
        const lines = only(text, "final_ranking").replaceAll("Agent ", "").split("\n");
        return `ranks ${lines.join(", ") || "nobody"}`;
      },
      check: () => null,
    });
  }

  // Reading.

  readCritiques(text, author) {
    const byTarget = new Map();
    for (const { opening, content } of pairedTags(text, CRITIQUE_TAG) ?? []) {
      const match = opening.match(OPENING);
      const target = match && Number(match[1]);
      const isKnown = match !== null && target < this.settings.personas.length;
      const critique = filled(content);
      if (!isKnown || target === author || critique === null || byTarget.has(target)) continue;
      byTarget.set(target, critique);
    }
    return [...byTarget].map(([target, critique]) => ({ target, text: critique }));
  }

  readRankings(replies, name) {
    return replies.map((reply, author) => this.readRanking(reply.text, name, author));
  }

  /** Return comparisons {winner, loser, weight} of other agents; a tie is two of weight 0.5. */
  readRanking(text, name, author) {
    const stated = new Map(); // pair, lower agent first: the relations stated
    for (const line of only(text, name).split("\n")) {
      for (const relation of readChain(line.trim(), this.settings.personas.length)) {
        const { first, symbol, second } = lowerFirst(relation);
        if (first === author || second === author) continue;
        const pair = `${first} ${second}`;
        if (!stated.has(pair)) stated.set(pair, new Set());
        stated.get(pair).add(symbol);
      }
    }
    const comparisons = [];
    for (const [pair, symbols] of stated) {
      const [first, second] = pair.split(" ").map(Number);
      if (symbols.size > 1) continue; // stated in two ways
      comparisons.push(...comparisonsOf(first, [...symbols][0], second));
    }
    return comparisons;
  }

  // Rewards (section 3.2).

  payAgent(agent, [proposal, review, revision, verdict], critiques, scores, rankings) {
    const solution = scores.after[agent];
    const why = `its final score, ${amount(solution)}`;
    const isRevised = tag(revision.text, "revised_solution") !== null;
    const alignment = majorityAlignment(agent, rankings);
    const isRanked = hasOneRanking(verdict.text);
    const ranking = isRanked ? alignment : null;
    const unranked = isRanked ? "no majority to meet" : "no readable ranking";
    return [
      pay(proposal, solution, why),
      payCritiques(review, critiques, scores),
      pay(revision, isRevised ? solution : null, isRevised ? why : "nothing readable"),
      pay(verdict, ranking, ranking === null ? unranked : "agreement with the others"),
    ];
  }
}

/** Whether a verdict holds one block for its ranking, whose tokens can be paid. */
function hasOneRanking(text) {
  return tagPairs(text, "final_ranking")?.length === 1;
}

function payCritiques(review, critiques, { before, after }) {
  if (critiques.length === 0) return pay(review, null, "no critique");
  const rises = critiques.map(({ target }) => Math.max(0, after[target] - before[target]));
  const rise = rises.reduce((sum, value) => sum + value, 0);
  return pay(review, 2 * rise, `2 × the rise of those criticised, ${amount(rise)}`);
}

/** Return the critiques of one agent as that agent reads them, by author. */
function critiquesOf(critiques, agent) {
  const received = critiques.flat().filter(({ target }) => target === agent);
  return received.map(({ text }) => quotedText(text));
}

/** Read `Agent a > Agent b = Agent c` as adjacent relations; none from any other line. */
function readChain(line, agents) {
  if (!CHAIN.test(line)) return [];
  const numbers = [...line.matchAll(new RegExp(AGENT, "g"))].map((match) => Number(match[1]));
  if (Math.max(...numbers) >= agents) return [];
  const symbols = line.match(/[<>=]/g);
  const relations = symbols.map((symbol, i) => ({
    first: numbers[i],
    symbol,
    second: numbers[i + 1],
  }));
  const comparesItself = relations.some(({ first, second }) => first === second);
  return comparesItself ? [] : relations;
}

function lowerFirst({ first, symbol, second }) {
  if (first < second) return { first, symbol, second };
  return { first: second, symbol: MIRRORED[symbol], second: first };
}

function comparisonsOf(first, symbol, second) {
  if (symbol === ">") return [{ winner: first, loser: second, weight: 1 }];
  if (symbol === "<") return [{ winner: second, loser: first, weight: 1 }];
  return [
    { winner: first, loser: second, weight: 0.5 },
    { winner: second, loser: first, weight: 0.5 },
  ];
}

function sigmoid(x) {
  return 1 / (1 + Math.exp(-x));
}

/**
 * Return the Bradley-Terry qualities of the agents, with a unit Gaussian prior.
 *
 * Newton's method for one strength after another; the problem is convex.
 */
export function agentScores(rankings) {
  const comparisons = rankings.flat();
  const strengths = Array(rankings.length).fill(0);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    let largestStep = 0;
    for (let agent = 0; agent < strengths.length; agent++) {
      let gradient = strengths[agent];
      let curvature = 1;
      for (const { winner, loser, weight } of comparisons) {
        if (winner !== agent && loser !== agent) continue;
        const surprise = sigmoid(strengths[loser] - strengths[winner]);
        gradient += weight * (winner === agent ? -surprise : surprise);
        curvature += weight * surprise * (1 - surprise);
      }
      strengths[agent] -= gradient / curvature;
      largestStep = Math.max(largestStep, Math.abs(gradient / curvature));
    }
    if (largestStep < CONVERGED) break;
  }
  return strengths.map(sigmoid);
}

/**
 * Return r_meta: how often an agent's preferences are those of the majority of the other agents.
 *
 * Ties and pairs on which the others are split do not count; null if nothing is left.
 */
function majorityAlignment(agent, rankings) {
  if (rankings[agent].length === 0) return 0;
  const strict = (ranking) => ranking.filter(({ weight }) => weight === 1);
  const others = rankings.filter((_, author) => author !== agent).flatMap(strict);
  const agreements = [];
  for (const { winner, loser } of strict(rankings[agent])) {
    let margin = 0;
    for (const other of others) {
      if (other.winner === winner && other.loser === loser) margin++;
      if (other.winner === loser && other.loser === winner) margin--;
    }
    if (margin !== 0) agreements.push(margin > 0);
  }
  if (agreements.length === 0) return null;
  return agreements.filter(Boolean).length / agreements.length;
}
