// Prints what `anotherSeed` makes of the episodes that a JSON file describes.
//
// node play_seeds.mjs REQUESTS: a request is {seed, episodes: {seed: episode or null}, other}, where
// `other` stands for all other seeds, and an episode is a list of {ok, reward, proposes, tries}.

import { readFileSync } from "node:fs";

import { Played, anotherSeed } from "../../reproduce/play/played.js";

function playedOf(description) {
  const replies = description.map(({ ok, proposes, tries }, number) => ({
    number,
    text: "",
    turn: { speaker: "One", check: () => ({ ok, text: "" }), proposes, tries },
  }));
  const payments = description.map(({ reward }, i) => ({ reply: replies[i], reward, why: "" }));
  return new Played({ waves: [{ replies }], payments });
}

const results = [];
for (const { seed, episodes, other } of JSON.parse(readFileSync(process.argv[2]))) {
  const tried = [];
  const found = await anotherSeed(seed, async (candidate) => {
    tried.push(candidate);
    const episode = candidate in episodes ? episodes[candidate] : other;
    return episode && playedOf(episode);
  });
  results.push({ found, tried });
}
console.log(JSON.stringify(results));
