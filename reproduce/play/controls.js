// The choices of a visitor: method, model, seed and temperature; in the form and in the address.

import { element } from "./view.js";

const LARGEST_SEED = 2 ** 32 - 1;

/** What each method does, and the episode that the page begins with. */
export const INTRODUCTIONS = {
  mae: {
    name: "MAE",
    about: "Multi-Agent Evolve (Chen et al.). A Proposer asks, a Solver answers, a Judge scores " +
      "both. The Judge's scores are the pay.",
    seed: 17,
    remark: "The Solver says that Zoe has 19. That is wrong, and the Judge pays it in full. " +
      "Asked again, the same Judge calls 19 worthless, and is paid for that as well.",
  },
  sage: {
    name: "SAGE",
    about: "Multi-Agent Self-Evolution (Peng et al.). A Challenger writes tasks with their " +
      "answer key; Planner, Solver and Critic work on them. The key, not the truth, decides.",
    seed: 66,
    remark: "The Challenger's own answer key is wrong: 34+1 is not 34. Four of five tries are " +
      "right, none agrees with the key, so the question counts as hard and is well paid.",
  },
  spice: {
    name: "SPICE",
    about: "Self-Play In Corpus Environments (Liu et al.). A Challenger reads a document and " +
      "asks; a Reasoner answers without it. Questions answered half of the time are paid best.",
    seed: 6,
    remark: "The key 0 for 3+3 is wrong, nobody answers 0, and the Challenger earns next to " +
      "nothing. Best paid is the question that is answered half of the time.",
  },
  comas: {
    name: "CoMAS",
    about: "Co-Evolving Multi-Agent Systems (Xue et al.). Agents solve, evaluate and score one " +
      "another. What a solution wins, its evaluation loses.",
    seed: 3,
    remark: "22 − 22 is 0, but the right answer earns nothing: it loses to the evaluation that " +
      "says 2. From then on 2 is what all agree on, and what is paid.",
  },
  conl: {
    name: "CoNL",
    about: "Conversation for Non-verifiable Learning (Sui and Hooi). Four personas propose, " +
      "criticise, revise and rank one another. The rankings are the pay.",
    seed: 1,
    remark: "11 * 3 is 33. Two agents say 13 and two say 14; critics talk the others into 14 " +
      "and are paid for that. Agreement is paid, not the truth.",
  },
};

const MODELS = { before: "before training", after: "after training" };

/** Return the settings of a method's first episode; with `isGuessed` the audience guesses first. */
export function firstEpisode(method) {
  const { seed } = INTRODUCTIONS[method];
  return { method, seed, temperature: 1, isTrained: false, isGuessed: false };
}

/** Whether settings are those of the method's first episode. */
export function isFirst({ method, seed, temperature, isTrained }) {
  return seed === INTRODUCTIONS[method].seed && temperature === 1 && !isTrained;
}

/** Whether settings are of the same episode, whoever guesses. */
export function isSameEpisode(one, other) {
  const keys = ["method", "seed", "temperature", "isTrained"];
  return keys.every((key) => one[key] === other[key]);
}

/**
 * Read an address such as #mae/17/1/before; what is missing or wrong is as in a first episode.
 *
 * With /step behind it, as for a lecture, the audience guesses first.
 */
export function readAddress(hash) {
  const [method, seed, temperature, model, step] = hash.replace("#", "").split("/");
  const first = firstEpisode(Object.hasOwn(INTRODUCTIONS, method) ? method : "mae");
  const isSeed = /^\d{1,10}$/.test(seed ?? "") && Number(seed) <= LARGEST_SEED;
  const isTemperature = /^\d(\.\d)?$/.test(temperature ?? "") && Number(temperature) <= 1.5;
  return {
    method: first.method,
    seed: isSeed ? Number(seed) : first.seed,
    temperature: isTemperature ? Number(temperature) : 1,
    isTrained: model === "after",
    isGuessed: step === "step",
  };
}

export function writeAddress({ method, seed, temperature, isTrained, isGuessed }) {
  const model = isTrained ? "after" : "before";
  return `#${method}/${seed}/${temperature}/${model}${isGuessed ? "/step" : ""}`;
}

function radio(name, value, text) {
  const input = element("input", { type: "radio", name, value });
  return element("label", {}, input, element("span", {}, text));
}

/** The form; `onChange(settings)` is called with each choice, `onAnother()` for another seed. */
export class Controls {
  constructor(form, onChange, onAnother) {
    this.form = form;
    this.onChange = onChange;
    const methods = Object.entries(INTRODUCTIONS).map(([key, { name }]) => [key, name]);
    this.fill("methods", "method", methods);
    this.fill("training", "model", Object.entries(MODELS));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", (event) => this.changed(event.target));
    form.querySelector("#temperature").addEventListener("input", () => this.showDegrees());
    form.querySelector("#another").addEventListener("click", onAnother);
  }

  fill(id, name, choices) {
    const labels = choices.map(([value, text]) => radio(name, value, text));
    this.form.querySelector(`#${id}`).replaceChildren(...labels);
  }

  changed(input) {
    if (!this.form.reportValidity()) return;
    const settings = this.read();
    // Another method begins with its own episode.
    if (input.name === "method") {
      settings.seed = firstEpisode(settings.method).seed;
    }
    this.onChange(settings);
  }

  read() {
    return {
      method: this.form.elements.method.value,
      seed: Number(this.form.querySelector("#seed").value),
      temperature: Number(this.form.querySelector("#temperature").value),
      isTrained: this.form.elements.model.value === "after",
      isGuessed: this.form.querySelector("#guess").checked,
    };
  }

  show({ method, seed, temperature, isTrained, isGuessed }) {
    this.form.elements.method.value = method;
    this.form.elements.model.value = isTrained ? "after" : "before";
    this.form.querySelector("#seed").value = seed;
    this.form.querySelector("#guess").checked = isGuessed;
    this.form.querySelector("#temperature").value = temperature;
    this.showDegrees();
  }

  showDegrees() {
    const { value } = this.form.querySelector("#temperature");
    this.form.querySelector("#degrees").textContent = Number(value).toFixed(1);
  }
}
