// The page: plays the chosen episode, shows it turn by turn, and plays on from changed replies.

import { amount } from "./arithmetic.js";
import { turns } from "./cards.js";
import {
  Controls, INTRODUCTIONS, isFirst, isSameEpisode, readAddress, writeAddress,
} from "./controls.js";
import { Models, play } from "./episode.js";
import { Guesses, Scene } from "./guesses.js";
import { Played, anotherSeed, verdictOnMany } from "./played.js";
import { board, editForm, element, remarkOn } from "./view.js";

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const models = new Models(data, arrived);

const state = {
  settings: readAddress(location.hash),
  edits: new Map(), // number of a turn: the visitor's reply
  played: null,
  shown: Infinity, // how many turns are shown
  guesses: new Guesses(), // what the audience has guessed, if it guesses
  opened: new Set(), // the folded turns that are open, by the number of the first
  run: 0, // counts episodes, so that an older one does not overwrite a newer one
};
const controls = new Controls(byId("controls"), applyChoice, another);

/** Resolve to the content of an element after this script, once the browser has read all of it. */
async function arrived(id) {
  // A partly read element has nothing behind it.
  const isRead = () => document.readyState !== "loading" || byId(id)?.nextSibling;
  while (!isRead()) {
    byId("status").textContent = "the model is loading";
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return JSON.parse(byId(id).textContent);
}

/** Let the browser draw before a model speaks on. */
function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Begin an episode; if the audience guesses first, with its first turn alone. */
async function begin(settings) {
  keep(settings);
  state.edits = new Map();
  state.shown = settings.isGuessed ? 1 : Infinity;
  state.opened = new Set();
  if (state.played === null) introduce();
  const isCurrent = await playOn();
  if (isCurrent && settings.isGuessed) step(1);
}

/** Keep the settings in address and form; every guess is open again. */
function keep(settings) {
  state.settings = settings;
  state.guesses = new Guesses();
  history.replaceState(null, "", writeAddress(settings));
  controls.show(settings);
}

/** Follow a choice in the form; whether the audience guesses changes no episode. */
function applyChoice(settings) {
  const isSame = state.played !== null && isSameEpisode(settings, state.settings);
  if (!isSame) return begin(settings);
  keep(settings);
  if (settings.isGuessed) state.shown = 1;
  show();
}

/** Go to the next seed whose episode is interesting, unless the visitor chooses something else. */
async function another() {
  const run = ++state.run;
  const settings = { ...controls.read(), seed: state.settings.seed };
  const seed = await anotherSeed(settings.seed, async (candidate) => {
    byId("status").textContent = `looking at seed ${candidate}`;
    const tried = { ...settings, seed: candidate };
    const played = new Played(await play(data, models, tried, new Map(), pause));
    return run === state.run ? played : null;
  });
  if (seed !== null) begin({ ...controls.read(), seed });
}

/**
 * Play the episode with the visitor's changes, and show it.
 *
 * Resolves to whether it is shown: not if another one was begun meanwhile.
 */
async function playOn() {
  const run = ++state.run;
  const onReply = async (number) => {
    if (run !== state.run) return;
    byId("status").textContent = `turn ${number + 1} is being sampled`;
    await pause();
  };
  const { settings, edits } = state;
  const original = new Played(await play(data, models, settings, new Map(), onReply));
  let played = original;
  if (edits.size) played = new Played(await play(data, models, settings, edits, onReply), original);
  if (run !== state.run) return false;
  state.played = played;
  show();
  return true;
}

// Showing.

function scene() {
  const { played, shown, opened, settings, guesses } = state;
  return new Scene({ played, shown, opened, guesses: settings.isGuessed ? guesses : null });
}

function isComplete() {
  return scene().isComplete;
}

/** Show what is known of an episode before it is played. */
function introduce() {
  byId("about").replaceChildren(...about());
  byId("remark").replaceChildren(element("p", {}, remark()));
  showPython();
  showPaper();
}

function show() {
  const { played } = state;
  introduce();
  const waiting = element("p", { class: "waiting" }, "The pay is settled after the last turn.");
  byId("board").replaceChildren(...(isComplete() ? board(scene()) : [waiting]));
  byId("turns").replaceChildren(...turns(scene()));
  byId("undo").hidden = state.edits.size === 0;
  byId("restart").disabled = false;
  byId("next").disabled = isComplete();
  byId("all").disabled = isComplete();
  byId("restart").classList.toggle("primary", isComplete());
  byId("next").classList.toggle("primary", !isComplete());
  const count = played.replies.length;
  const place = isComplete() ? `all ${count} turns` : `${state.shown} of ${count} turns`;
  byId("status").textContent = place;
}

function remark() {
  const { played, settings, edits, shown } = state;
  const isOpen = played ? !isComplete() : shown < Infinity;
  if (isOpen && settings.isGuessed) return "Right or wrong? Guess, then press “Show”.";
  if (isOpen) return "Who will be paid for what? Guess before the last turn.";
  if (played && !scene().isSettled) return "Who is paid for what? Guess, then press “Show”.";
  if (edits.size === 0 && isFirst(settings)) return INTRODUCTIONS[settings.method].remark;
  return played ? remarkOn(played) : "";
}

function about() {
  const { method } = state.settings;
  const { name, about: text } = INTRODUCTIONS[method];
  const gain = data.runs[method];
  const sign = gain.points < 0 ? "−" : "+";
  const points = `${sign}${Math.abs(gain.points).toFixed(1)}`;
  const limits = [gain.low, gain.high].map((limit) => limit.toFixed(1).replace("-", "−"));
  return [
    element("b", {}, name),
    `: ${text} `,
    element("b", {}, "Training"),
    `: ${gain.steps} steps on one seed. Of ${gain.questions} held-out questions, ` +
      `${gain.before.toFixed(1)} % are right before and ${gain.after.toFixed(1)} % after ` +
      `(${points} points, 95 % interval ${limits.join(" to ")}). The command: `,
    element("code", {}, gain.command),
  ];
}

function showPython() {
  const { settings } = state;
  const isSame = !settings.isTrained && state.edits.size === 0;
  byId("python").hidden = !isSame;
  byId("python").querySelector("code").textContent = data.methods[settings.method].python
    .replaceAll("SEED", settings.seed)
    .replaceAll("TEMPERATURE", settings.temperature.toFixed(1));
}

/** Let the footer lead to the paper of the method. */
function showPaper() {
  const { method } = state.settings;
  const link = byId("paper");
  link.href = data.methods[method].paper;
  link.textContent = `The paper of ${INTRODUCTIONS[method].name}`;
}

// Stepping.

/** Return what stands for a turn: its card, or the line about several like it. */
function placeOf(number) {
  const turn = byId(`turn-${number}`);
  return turn?.closest(".fold") ?? turn;
}

function step(shown) {
  state.shown = shown;
  show();
  const { replies } = state.played;
  const last = placeOf(Math.min(shown, replies.length) - 1);
  if (isComplete() && !state.settings.isGuessed) byId("remark").scrollIntoView({ block: "start" });
  else last.scrollIntoView({ block: "nearest" });
  focusGuess(last);
}

/** Put the focus on the button of a guess, so that Enter ends it. */
function focusGuess(place) {
  const button = place.querySelector(":scope > .show") ?? place.querySelector(".show");
  button?.focus({ preventScroll: true });
}

byId("restart").addEventListener("click", () => {
  step(1);
  byId("next").focus({ preventScroll: true });
});
byId("next").addEventListener("click", () => step(state.played.nextStop(state.shown)));
byId("all").addEventListener("click", () => {
  step(Infinity);
  if (state.settings.isGuessed) nextAfter(byId("turns")).focus();
});

// Guessing.

/** End the guess about some replies, and lead on: to the next turn, or to the next guess. */
function endGuess(numbers) {
  const { guesses, played } = state;
  guesses.show(numbers, isComplete());
  show();
  const last = numbers.at(-1);
  byId("status").textContent = announcement(played, numbers);
  placeOf(last).scrollIntoView({ block: "nearest" }); // the card has grown
  nextAfter(placeOf(last)).focus();
}

/** Say what a guess was about; a screen reader reads it aloud. */
function announcement(played, numbers) {
  const replies = numbers.map((number) => played.replies[number]);
  if (replies.length > 1) return verdictOnMany(played, replies);
  const verdict = played.verdicts[numbers[0]]?.text;
  const payment = isComplete() ? played.payment(replies[0]) : null;
  const pay = payment ? `paid ${amount(payment.reward)}` : null;
  return `turn ${numbers[0] + 1}: ${[verdict, pay].filter(Boolean).join(", ")}`;
}

/** Return what leads on from a place: the next turn, or after the last one the next guess. */
function nextAfter(place) {
  if (!isComplete()) return byId("next");
  const all = [...byId("turns").querySelectorAll(".show")];
  const buttons = all.filter((button) => !button.closest("details:not([open])"));
  const isBehind = (button) =>
    place.compareDocumentPosition(button) & Node.DOCUMENT_POSITION_FOLLOWING;
  return buttons.find(isBehind) ?? buttons[0] ?? byId("remark");
}

byId("turns").addEventListener("click", ({ target }) => {
  const button = target.closest(".show");
  if (button) endGuess(button.dataset.show.split(" ").map(Number));
});

// This event does not bubble.
byId("turns").addEventListener("toggle", ({ target }) => {
  const first = Number(target.dataset.first);
  if (target.open) state.opened.add(first);
  else state.opened.delete(first);
}, true);

// Changing a reply.

async function change(number, text) {
  const earlier = [...state.edits].filter(([turn]) => turn < number);
  state.edits = new Map([...earlier, [number, text]]);
  state.guesses.hideFrom(number);
  if (!isComplete()) state.shown = state.played.nextStop(number);
  await playOn();
  byId(`turn-${number}`).querySelector(".change").focus();
  byId("status").textContent = `turn ${number + 1} is yours, the later turns are new`;
}

byId("turns").addEventListener("click", ({ target }) => {
  const button = target.closest(".change");
  if (button) {
    const reply = state.played.replies[Number(button.dataset.turn)];
    const form = editForm(reply);
    button.closest(".texts").append(form);
    button.remove();
    form.querySelector("textarea").focus();
  } else if (target.closest("[data-cancel]")) {
    const number = Number(target.closest("form").dataset.turn);
    show();
    byId(`turn-${number}`).querySelector(".change").focus();
  }
});

byId("turns").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  change(Number(form.dataset.turn), form.querySelector("textarea").value);
});

byId("undo").addEventListener("click", async () => {
  state.guesses.hideFrom(Math.min(...state.edits.keys()));
  state.edits = new Map();
  await playOn();
  byId("restart").focus();
});

// The address holds the settings, so a link to a turn must not change it.
byId("board").addEventListener("click", (event) => {
  const entry = event.target.closest(".entry");
  if (!entry) return;
  event.preventDefault();
  const turn = byId(entry.getAttribute("href").slice(1));
  turn.scrollIntoView({ block: "center" });
  turn.focus({ preventScroll: true });
});

addEventListener("hashchange", () => begin(readAddress(location.hash)));

begin(state.settings);
