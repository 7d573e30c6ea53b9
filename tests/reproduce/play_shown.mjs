// Plays the episodes that a JSON file asks for and prints what the page makes of them.
//
// node play_shown.mjs DATA REQUESTS: as for play_episodes.mjs. Guesses are ended in the order of
// the turns: `hidden` counts the guesses that wait before the last turn, after it, and once all
// verdicts and then all pay are shown.

import { readFileSync } from "node:fs";

import { Models, play } from "../../reproduce/play/episode.js";
import { Guesses, Scene } from "../../reproduce/play/guesses.js";
import { Played, saidByMany, verdictOnMany } from "../../reproduce/play/played.js";

const [data, requests] = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file)));
const models = new Models(data, async (part) => data.weights[part]);

function describeReply(played, reply) {
  const { turn, text, number } = reply;
  return {
    role: turn.role,
    payment: played.payment(reply)?.reward,
    isPaid: played.payment(reply) !== null,
    verdict: played.verdicts[number],
    judges: turn.judges?.number ?? null,
    says: turn.says?.(text) ?? null,
    truth: turn.truth ?? null,
    key: turn.key?.(text) ?? null,
    fallback: turn.fallback?.(text) ?? null,
    judgements: played.judgementsOf(reply, played.replies.length).map((one) => one.number),
    earlyJudgements: played.judgementsOf(reply, number + 1).length,
    isMisjudged: played.isMisjudged(reply, played.replies.length),
  };
}

function describeFold(played, step) {
  const numbers = step.map(({ number }) => number);
  if (step.length === 1) return { numbers };
  return { numbers, said: saidByMany(step), verdict: verdictOnMany(played, step) };
}

function countHidden(played) {
  const guesses = new Guesses();
  const opened = new Set();
  const count = played.replies.length;
  const waiting = (shown) => {
    const scene = new Scene({ played, shown, guesses, opened });
    return played.replies.filter((reply) => scene.hides(reply)).length;
  };
  const numbers = played.replies.map(({ number }) => number);
  const hidden = [waiting(count - 1), waiting(count)];
  guesses.show(numbers, false);
  hidden.push(waiting(count - 1), waiting(count));
  guesses.show(numbers, true);
  hidden.push(waiting(count));
  guesses.hideFrom(1);
  hidden.push(waiting(count));
  return hidden;
}

const shown = [];
for (const { settings, edits } of requests) {
  const texts = new Map(Object.entries(edits).map(([number, text]) => [Number(number), text]));
  const played = new Played(await play(data, models, settings, texts));
  const stops = [];
  while ((stops.at(-1) ?? 0) < played.replies.length) {
    stops.push(played.nextStop(stops.at(-1) ?? 0));
  }
  shown.push({
    replies: played.replies.map((reply) => describeReply(played, reply)),
    parts: played.waves.map(({ part }) => part).filter(Boolean),
    steps: played.waves.flatMap(({ steps }) => steps.map((step) => describeFold(played, step))),
    stops,
    hidden: countHidden(played),
  });
}
console.log(JSON.stringify(shown));
