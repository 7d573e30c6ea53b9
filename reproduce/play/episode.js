// One episode, played with a model and recorded, as by coevolve.rollout.EpisodeStepper.

import { CoMAS } from "./methods/comas.js";
import { CoNL } from "./methods/conl.js";
import { MAE } from "./methods/mae.js";
import { SAGE } from "./methods/sage.js";
import { SPICE } from "./methods/spice.js";
import { Model, readBase, readTrained } from "./model.js";
import { Random } from "./random.js";
import { Tokenizer } from "./tokenizer.js";
import { World } from "./world.js";

export const METHODS = { mae: MAE, sage: SAGE, spice: SPICE, comas: CoMAS, conl: CoNL };

/** The models of the page: the untrained one, and those that a method has trained. */
export class Models {
  /** `packedWeights(part)` resolves to the packed weights: "base", or "trained" by name. */
  constructor({ model, tokenizer }, packedWeights) {
    this.config = model;
    this.packedWeights = packedWeights;
    this.tokenizer = new Tokenizer(tokenizer);
    this.loaded = new Map();
  }

  /** Return the model that plays a policy of a method, trained or not. */
  async find(method, policy, isTrained) {
    const name = isTrained ? `${method}/${policy}` : "base";
    if (!this.loaded.has(name)) this.loaded.set(name, this.load(name));
    return this.loaded.get(name);
  }

  async load(name) {
    const { shapes } = this.config;
    if (name === "base") {
      const tensors = await readBase(shapes, await this.packedWeights("base"));
      return new Model(this.config, tensors, this.tokenizer);
    }
    const base = await this.find("", "", false);
    const packed = await this.packedWeights("trained");
    const tensors = await readTrained(shapes, base.tensors, packed[name]);
    return new Model(this.config, tensors, this.tokenizer);
  }
}

/** Replies by what they depend on: an episode played again is sampled only where it differs. */
const SAMPLED = new Map();

/**
 * Play an episode to its end.
 *
 * `settings` are {method, seed, temperature, isTrained}; `edits` maps the number of a turn to a
 * text that replaces its reply. `onReply` is awaited before each turn. Returns {waves, payments}; a
 * wave is {title, note, replies}, a reply {number, turn, text, isEdited}.
 */
export async function play(page, models, settings, edits = new Map(), onReply = () => {}) {
  const methodSettings = page.methods[settings.method];
  const method = new METHODS[settings.method](methodSettings, new World(page.world));
  const episode = method.episode(new Random(settings.seed));
  const waves = [];
  let number = 0;
  let step = episode.next();
  while (!step.done) {
    const replies = [];
    for (const turn of step.value.turns) {
      await onReply(number);
      const isEdited = edits.has(number);
      const text = isEdited
        ? edits.get(number)
        : await sampled(models, settings, methodSettings.limit, turn, number);
      replies.push({ number, turn, text, isEdited });
      number++;
    }
    if (replies.length) waves.push({ ...step.value, replies });
    step = episode.next(replies);
  }
  return { waves, payments: step.value };
}

async function sampled(models, settings, limit, turn, number) {
  const { method, seed, isTrained } = settings;
  const temperature = turn.temperature ?? settings.temperature;
  const options = { key: [seed, 0, 0, number], temperature, limit };
  const weights = isTrained ? `${method}/${turn.policy}` : "base";
  const sample = JSON.stringify([weights, options, turn.prompt]);
  if (!SAMPLED.has(sample)) {
    const model = await models.find(method, turn.policy, isTrained);
    SAMPLED.set(sample, await model.reply(turn.prompt, options));
  }
  return SAMPLED.get(sample);
}
