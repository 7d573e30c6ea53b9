// What the page shows of an episode: who reads what, says what, is paid what, and is right.

import { amount } from "./arithmetic.js";

const TAGS = /(<\/?[a-z_]+(?: target="Agent \d+")?>)/;

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
export function marked(text, className) {
  const parts = text.split(TAGS).map((part, place) => {
    if (part === "") return null;
    return element("span", { class: place % 2 ? "tag" : "content" }, part);
  });
  return element("code", { class: className }, ...parts);
}

/** Return what the oracle says, with its sign; `tellsMore` adds what answers the question. */
export function verdictLine(verdict, tellsMore) {
  if (verdict === null) return null;
  const signs = { true: "✓ ", false: "✗ ", null: "" };
  const names = { true: "right", false: "wrong", null: "none" };
  const { ok, text, more } = verdict;
  const rest = more && tellsMore ? `; ${more}` : "";
  return element("span", { class: `verdict ${names[ok]}` }, signs[ok], text, rest);
}

// Who is paid what.

/** Return a card for each speaker; what an audience has yet to guess stands as a question mark. */
export function board(scene) {
  const { played } = scene;
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
      element("ul", {}, ...replies.map((reply) => element("li", {}, boardEntry(scene, reply)))),
    ));
}

function boardEntry(scene, reply) {
  const { played } = scene;
  const { reward } = played.payment(reply);
  const isHidden = scene.hides(reply);
  const isOdd = !isHidden && played.clashOf(reply) !== null;
  const pay = isHidden ? ["?"] : [amount(reward), wasLine(played.rewardBefore(reply))];
  const verdict = isHidden
    ? element("span", { class: "verdict none" }, "guess first")
    : verdictLine(played.verdicts[reply.number], scene.tellsMore);
  return element(
    "a",
    { class: isOdd ? "entry odd-entry" : "entry", href: `#turn-${reply.number}` },
    element("span", { class: "reward" }, ...pay.filter(Boolean)),
    element("span", { class: "gist" }, reply.turn.gist(reply.text)),
    verdict,
  );
}

export function wasLine(before) {
  return before === null ? null : element("span", { class: "was" }, `was ${amount(before)}`);
}

// Changing a reply.

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
