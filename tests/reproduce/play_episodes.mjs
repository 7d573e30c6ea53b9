// Plays the episodes that a JSON file asks for, as the page does, and prints them as JSON.
//
// node play_episodes.mjs DATA REQUESTS: a request is {settings, edits: {number of a turn: text}}.

import { readFileSync } from "node:fs";

import { Models, play } from "../../reproduce/play/episode.js";

const [data, requests] = process.argv.slice(2).map((file) => JSON.parse(readFileSync(file)));
const models = new Models(data, async (part) => data.weights[part]);
const episodes = [];
for (const { settings, edits } of requests) {
  const texts = new Map(Object.entries(edits).map(([number, text]) => [Number(number), text]));
  const { waves, payments } = await play(data, models, settings, texts);
  const replies = waves.flatMap((wave) => wave.replies);
  episodes.push({
    turns: replies.map(({ turn, text }) => ({ role: turn.role, prompt: turn.prompt, text })),
    verdicts: replies.map(({ turn, text }) => turn.check(text)),
    gists: replies.map(({ turn, text }) => turn.gist(text)),
    payments: payments.map(({ reply, reward }) => ({ turn: reply.number, reward })),
  });
}
console.log(JSON.stringify(episodes));
