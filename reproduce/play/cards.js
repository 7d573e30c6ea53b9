// The turns of an episode as cards: who reads what, says what, is judged how, and is paid what.

import { amount } from "./arithmetic.js";
import { saidByMany, verdictOnMany } from "./played.js";
import { element, marked, verdictLine, wasLine } from "./view.js";

/** Return the waves that a scene shows; pay only after the last turn. */
export function turns(scene) {
  const visible = scene.played.waves.filter(({ replies }) => replies[0].number < scene.shown);
  return visible.flatMap((wave) => [dividerBefore(wave), waveSection(scene, wave)].filter(Boolean));
}

function dividerBefore({ part }) {
  return part === undefined ? null : element("p", { class: "part" }, part);
}

function waveSection(scene, { title, note, steps, replies }) {
  const topics = new Set(replies.map(({ turn }) => turn.topic));
  const list = element("ol", {});
  let topic;
  for (const step of steps) {
    const rows = step.filter(({ number }) => number < scene.shown);
    if (rows.length === 0) continue;
    const isNewTopic = topics.size > 1 && rows[0].turn.topic !== topic;
    topic = rows[0].turn.topic;
    if (isNewTopic) list.append(element("li", { class: "topic" }, `The question “${topic}”`));
    list.append(rows.length > 1 ? fold(scene, rows) : card(scene, rows[0]));
  }
  return element(
    "section",
    { class: "wave" },
    element("h3", {}, title),
    element("p", { class: "note" }, note),
    list,
  );
}

// Several replies that look alike.

function fold(scene, replies) {
  const { played, opened } = scene;
  const [first, last] = [replies[0].number, replies.at(-1).number];
  const isHidden = replies.some((reply) => scene.hides(reply));
  const isChanged = replies.some((reply) => played.isChanged(reply));
  const summary = element(
    "summary",
    {},
    element("b", {}, `${replies.length} ${replies[0].turn.many}`),
    `: ${saidByMany(replies)}`,
    isHidden ? null : element("span", { class: "count" }, ` · ${verdictOnMany(played, replies)}`),
    element("span", { class: "unfold" }, " · show all"),
    isChanged ? " " : null,
    isChanged ? element("span", { class: "flag" }, "now different") : null,
  );
  const details = element(
    "details",
    { "data-first": first, open: opened.has(first) ? "" : null },
    summary,
    element("ol", {}, ...replies.map((reply) => card(scene, reply))),
  );
  const isJudging = replies[0].turn.judges !== undefined;
  const question = isJudging ? "Show how often the oracle agrees" : "Show how many are right";
  const place = `turns ${first + 1} to ${last + 1}`;
  const button = isHidden ? showButton(replies, question, place) : null;
  const style = played.colour(replies[0].turn.speaker);
  return element("li", { class: "fold", style }, details, button);
}

// One reply.

function card(scene, reply) {
  const { played } = scene;
  const { number, turn } = reply;
  const isOdd = scene.isComplete && !scene.hides(reply) && played.clashOf(reply) !== null;
  const classes = ["turn", played.payment(reply) ? "paid" : "", isOdd ? "odd" : ""];
  return element(
    "li",
    {
      id: `turn-${number}`,
      tabindex: "-1",
      class: classes.filter(Boolean).join(" "),
      style: played.colour(turn.speaker),
    },
    element("div", { class: "who" }, element("b", {}, turn.speaker), turnLabel(played, reply)),
    element("div", { class: "texts" }, ...textLines(played, reply)),
    element("div", { class: "oracle" }, ...judgedLines(scene, reply)),
    element("div", { class: "pay" }, ...payLines(scene, reply)),
  );
}

function turnLabel(played, reply) {
  const label = element("small", {}, `turn ${reply.number + 1} `);
  const isOther = reply.isEdited || played.isChanged(reply);
  const flag = reply.isEdited ? "your words" : "now different";
  if (isOther) label.append(element("span", { class: "flag" }, flag));
  return label;
}

function textLines(played, reply) {
  const fallback = reply.turn.fallback?.(reply.text) ?? null;
  return [
    line("reads", readText(played, reply)),
    line("says", marked(reply.text || "(nothing)", "says"), changeButton(reply)),
    fallback === null ? "" : element("p", { class: "fallback" }, fallback),
  ];
}

function line(label, ...content) {
  return element("p", {}, element("span", { class: "label" }, label), ...content);
}

/** Return what a turn reads; a prompt that the turn above has as well is not repeated. */
function readText(played, reply) {
  const above = played.replies[reply.number - 1];
  const isRepeated = above !== undefined && above.turn.prompt === reply.turn.prompt;
  if (isRepeated) return element("span", { class: "label" }, "the same");
  return marked(reply.turn.prompt, "reads");
}

function changeButton({ number, turn }) {
  const label = `Change reply ${number + 1}, ${turn.speaker}`;
  const attributes = { type: "button", class: "change", "data-turn": number, "aria-label": label };
  return element("button", attributes, "Change");
}

/** Return the button that ends a guess about replies. */
function showButton(replies, text, place) {
  const numbers = replies.map(({ number }) => number).join(" ");
  const attributes = { type: "button", class: "show", "data-show": numbers };
  return element("button", { ...attributes, "aria-label": `${text}, ${place}` }, text);
}

function showOne(reply, text) {
  return showButton([reply], text, `turn ${reply.number + 1}, ${reply.turn.speaker}`);
}

// What the model's own judge says, and what the oracle says.

function judgedLines(scene, reply) {
  const { played } = scene;
  const { number, turn, text } = reply;
  const lines = played.judgementsOf(reply, scene.shown).map(judgementLine);
  if (turn.judges) lines.push(saysLine(`${named(turn.speaker)} says`, turn.says(text)));
  if (scene.hidesVerdict(reply)) return [...lines, showOne(reply, "Show")];
  if (turn.key) lines.push(saysLine("the key says", turn.key(text).text));
  lines.push(...(turn.judges ? oracleOnJudge(played, reply) : oracleOnReply(scene, reply)));
  return lines;
}

function judgementLine(judgement, place, judgements) {
  const { turn, text, number } = judgement;
  const where = judgements.length > 1 ? ` (turn ${number + 1})` : "";
  return saysLine(`${named(turn.speaker)} says${where}`, turn.says(text));
}

function oracleOnReply(scene, reply) {
  const verdict = scene.played.verdicts[reply.number];
  if (verdict === null) return [];
  const isMisjudged = scene.played.isMisjudged(reply, scene.shown);
  return [
    saysLine("the oracle says", verdictLine(verdict, scene.tellsMore)),
    isMisjudged ? element("span", { class: "differ" }, "they differ") : "",
  ];
}

function oracleOnJudge(played, { number, turn }) {
  const verdict = played.verdicts[number];
  if (verdict === null) return [];
  const agreement = { ok: verdict.ok, text: verdict.ok ? "they agree" : "they differ" };
  return [saysLine("the oracle says", turn.truth), verdictLine(agreement)];
}

function saysLine(label, said) {
  return element(
    "span",
    { class: "judged" },
    element("span", { class: "label" }, `${label}: `),
    element("span", { class: "said" }, said),
  );
}

/** Write "the Judge", but "Agent 2". */
function named(speaker) {
  return speaker.startsWith("Agent") ? speaker : `the ${speaker}`;
}

// Pay.

function payLines(scene, reply) {
  const payment = scene.played.payment(reply);
  if (!payment) return [element("span", { class: "unpaid" }, `unpaid: ${reply.turn.unpaid}`)];
  if (!scene.isComplete) return [element("span", { class: "waiting" }, "paid at the end")];
  if (scene.hidesPay(reply)) {
    if (!scene.hidesVerdict(reply)) return [showOne(reply, "Show the pay")];
    return [element("span", { class: "waiting" }, "paid: ?")]; // shown with the verdict
  }
  return settledLines(scene.played, reply, payment);
}

function settledLines(played, reply, { reward, why }) {
  const before = played.rewardBefore(reply);
  const lines = [element("span", { class: "amount" }, amount(reward), wasLine(before))];
  if (reward !== null && reward > 0) {
    const share = Math.round((100 * reward) / played.largest);
    const filled = element("span", { style: `width: ${share}%` });
    lines.push(element("span", { class: "bar", "aria-hidden": "true" }, filled));
  }
  lines.push(element("span", { class: "why" }, why));
  const oddity = played.clashOf(reply);
  if (oddity) lines.push(element("span", { class: "mark wrong" }, oddity));
  return lines;
}
