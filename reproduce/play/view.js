// What the page shows of an episode: who reads what, says what, is paid what, and is right.

import { amount } from "./arithmetic.js";

const TAGS = /(<\/?[a-z_]+(?: target="Agent \d+")?>)/;
const WELL_PAID = 0.7;
const BADLY_PAID = 0.1;
const ROLE_COLOURS = 5;

/** Return an element; children are elements or texts, attributes that are null are left out. */
export function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Return a text in which tags stand back behind their content. */
function marked(text, className) {
  const parts = text.split(TAGS).map((part, place) => {
    if (part === "") return null;
    return element("span", { class: place % 2 ? "tag" : "content" }, part);
  });
  return element("code", { class: className }, ...parts);
}

function verdictLine(verdict) {
  if (verdict === null) return null;
  const signs = { true: "✓ ", false: "✗ ", null: "" };
  const names = { true: "right", false: "wrong", null: "none" };
  const { ok, text } = verdict;
  return element("span", { class: `verdict ${names[ok]}` }, signs[ok], text);
}

/** What pay and oracle say together about a reply; null where they do not clash. */
export function clash(verdict, reward) {
  if (verdict === null || reward === null) return null;
  if (verdict.ok === false && reward >= WELL_PAID) return "well paid, and wrong";
  if (verdict.text === "right" && reward <= BADLY_PAID) return "right, and not paid";
  return null;
}

/** An episode with what is known about each reply, for showing. */
export class Played {
  /** `original` is the episode without the visitor's changes, or null. */
  constructor({ waves, payments }, original = null) {
    this.waves = waves;
    this.replies = waves.flatMap((wave) => wave.replies);
    this.paymentOf = new Map(payments.map((payment) => [payment.reply.number, payment]));
    this.original = original;
    this.speakers = [...new Set(this.replies.map(({ turn }) => colourName(turn.speaker)))];
    const rewards = payments.map(({ reward }) => Math.abs(reward ?? 0));
    this.largest = Math.max(1, ...rewards);
    this.verdicts = this.replies.map(({ turn, text }) => turn.check(text));
  }

  payment(reply) {
    return this.paymentOf.get(reply.number) ?? null;
  }

  clashOf(reply) {
    return clash(this.verdicts[reply.number], this.payment(reply)?.reward ?? null);
  }

  /** The reward of the same turn before the visitor's changes, if it was another one. */
  rewardBefore(reply) {
    const now = this.payment(reply)?.reward ?? null;
    const before = this.original?.paymentOf.get(reply.number)?.reward ?? null;
    return before === null || before === now ? null : before;
  }

  isChanged(reply) {
    const before = this.original?.replies[reply.number];
    return before !== undefined && before.text !== reply.text;
  }

  colour(speaker) {
    const place = this.speakers.indexOf(colourName(speaker)) % ROLE_COLOURS;
    return `--role: var(--role-${place})`;
  }
}

/** A Solver that tries has the colour of the Solver. */
function colourName(speaker) {
  return speaker.replace(", a try", "");
}

// Who is paid what.

export function board(played) {
  const groups = new Map();
  for (const reply of played.replies) {
    if (!played.payment(reply)) continue;
    const { speaker } = reply.turn;
    groups.set(speaker, [...(groups.get(speaker) ?? []), reply]);
  }
  return [...groups].map(([speaker, replies]) =>
    element(
      "section",
      { class: "speaker", style: played.colour(speaker), "aria-label": speaker },
      element("h3", {}, speaker),
      element("ul", {}, ...replies.map((reply) => element("li", {}, boardEntry(played, reply)))),
    ));
}

function boardEntry(played, reply) {
  const { reward } = played.payment(reply);
  const isOdd = played.clashOf(reply) !== null;
  const before = played.rewardBefore(reply);
  return element(
    "a",
    { class: isOdd ? "entry odd-entry" : "entry", href: `#turn-${reply.number}` },
    element("span", { class: "reward" }, amount(reward), wasLine(before)),
    element("span", { class: "gist" }, reply.turn.gist(reply.text)),
    verdictLine(played.verdicts[reply.number]),
  );
}

function wasLine(before) {
  return before === null ? null : element("span", { class: "was" }, `was ${amount(before)}`);
}

// Turn by turn.

/** Return the waves up to a number of shown turns; pay only if all are shown. */
export function turns(played, shown) {
  const isComplete = shown >= played.replies.length;
  const visible = played.waves.filter(({ replies }) => replies[0].number < shown);
  return visible.map(({ title, note, replies }) => {
    const rows = replies.filter((reply) => reply.number < shown);
    return element(
      "section",
      { class: "wave" },
      element("h3", {}, title),
      element("p", { class: "note" }, note),
      element("ol", {}, ...rows.map((reply) => row(played, reply, isComplete))),
    );
  });
}

function row(played, reply, isComplete) {
  const payment = played.payment(reply);
  const isOdd = isComplete && played.clashOf(reply) !== null;
  const classes = ["turn", payment ? "paid" : "", isOdd ? "odd" : ""];
  const { number, turn } = reply;
  return element(
    "li",
    {
      id: `turn-${number}`,
      tabindex: "-1",
      class: classes.filter(Boolean).join(" "),
      style: played.colour(turn.speaker),
    },
    element("div", { class: "who" }, element("b", {}, turn.speaker), turnLabel(played, reply)),
    element(
      "div",
      { class: "texts" },
      line("reads", readText(played, reply)),
      line("says", marked(reply.text || "(nothing)", "says"), changeButton(reply)),
    ),
    element("div", { class: "oracle" }, verdictLine(played.verdicts[number])),
    element("div", { class: "pay" }, ...payLines(played, reply, isComplete)),
  );
}

function turnLabel(played, reply) {
  const label = element("small", {}, `turn ${reply.number + 1} `);
  const isOther = reply.isEdited || played.isChanged(reply);
  const flag = reply.isEdited ? "your words" : "now different";
  if (isOther) label.append(element("span", { class: "flag" }, flag));
  return label;
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

function payLines(played, reply, isComplete) {
  const payment = played.payment(reply);
  if (!payment) return [element("span", { class: "unpaid" }, `unpaid: ${reply.turn.unpaid}`)];
  if (!isComplete) return [element("span", { class: "waiting" }, "paid at the end")];
  const { reward, why } = payment;
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

/** Return the form in which a visitor puts another reply in a role's place. */
export function editForm({ number, text }) {
  const id = `edit-${number}`;
  const area = element("textarea", { id, maxlength: "600" });
  area.value = text;
  const buttons = element(
    "div",
    {},
    element("button", { type: "submit", class: "primary" }, "Use it and go on"),
    element("button", { type: "button", "data-cancel": "" }, "Cancel"),
  );
  const label = element("label", { for: id }, "Your reply, with its tags");
  return element("form", { class: "edit", "data-turn": number }, label, area, buttons);
}

// The sentence to begin with.

/** Return a sentence about the most striking reply of an episode. */
export function remarkOn(played) {
  const paid = played.replies.filter((reply) => played.payment(reply));
  const byReward = [...paid].sort(
    (a, b) => played.payment(b).reward - played.payment(a).reward,
  );
  const odd = byReward.find((reply) => played.clashOf(reply));
  if (!odd) {
    return "Here nobody is paid well for a mistake. Try another seed, or change a reply below.";
  }
  const { speaker, gist } = odd.turn;
  const { reward } = played.payment(odd);
  const verdict = played.verdicts[odd.number].text;
  const place = `${speaker}, turn ${odd.number + 1}`;
  const pay = `The pay is ${amount(reward)}, and the oracle says: ${verdict}.`;
  return `${place}: ${gist(odd.text)}. ${pay}`;
}
