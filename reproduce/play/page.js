// The page: plays the chosen episode, shows it turn by turn, and plays on from changed replies.

import {
  Controls, INTRODUCTIONS, isFirst, isForLecture, readAddress, writeAddress,
} from "./controls.js";
import { Models, play } from "./episode.js";
import { Played, board, editForm, element, remarkOn, turns } from "./view.js";

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const models = new Models(data, arrived);

const state = {
  settings: readAddress(location.hash),
  edits: new Map(), // number of a turn: the visitor's reply
  played: null,
  shown: Infinity, // how many turns are shown
  run: 0, // counts episodes, so that an older one does not overwrite a newer one
};
const controls = new Controls(byId("controls"), (settings) => begin(settings));

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

/** Begin an episode; a lecture begins with its first turn alone. */
async function begin(settings, isLecture = false) {
  state.settings = settings;
  state.edits = new Map();
  state.shown = isLecture ? 1 : Infinity;
  history.replaceState(null, "", writeAddress(settings));
  controls.show(settings);
  if (state.played === null) introduce();
  await playOn();
}

/** Play the episode with the visitor's changes, and show it. */
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
  if (run !== state.run) return;
  state.played = played;
  show();
}

// Showing.

function isComplete() {
  return state.shown >= state.played.replies.length;
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
  byId("board").replaceChildren(...(isComplete() ? board(played) : [waiting]));
  byId("turns").replaceChildren(...turns(played, state.shown));
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
  if (isOpen) return "Who will be paid for what? Guess before the last turn.";
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

function showTurn(number) {
  byId(`turn-${number}`)?.scrollIntoView({ block: "nearest" });
}

function step(shown) {
  state.shown = shown;
  show();
  if (!isComplete()) showTurn(shown - 1);
  else byId("remark").scrollIntoView({ block: "start" });
}

byId("restart").addEventListener("click", () => {
  step(1);
  byId("next").focus({ preventScroll: true });
});
byId("next").addEventListener("click", () => step(state.shown + 1));
byId("all").addEventListener("click", () => step(Infinity));

// Changing a reply.

async function change(number, text) {
  const earlier = [...state.edits].filter(([turn]) => turn < number);
  state.edits = new Map([...earlier, [number, text]]);
  if (!isComplete()) state.shown = number + 1;
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

addEventListener("hashchange", () => begin(readAddress(location.hash), isForLecture(location.hash)));

begin(state.settings, isForLecture(location.hash));
