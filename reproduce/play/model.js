// The embedded language model, a Qwen2 of 0.25 million parameters, and its sampler.
//
// Weights are those of Python, in float32. Sums are in float64, where torch has float32: the
// probabilities agree to six digits, so a token differs only if its noise falls between them.

import { uniforms } from "./noise.js";

const LONGEST_TASK = 25; // ms; after 50 a visitor feels that the page does not answer

let lastPause = 0;

/** Let the browser draw and answer the visitor, if the model has computed long enough. */
async function pauseWhenDue() {
  if (performance.now() - lastPause < LONGEST_TASK) return;
  await new Promise((resolve) => setTimeout(resolve));
  lastPause = performance.now();
}

/** Return the bytes of base64 text that holds gzipped data. */
async function unpacked(base64) {
  const text = atob(base64);
  const packed = new Uint8Array(text.length); // Uint8Array.from takes many times as long
  for (let i = 0; i < packed.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function sizeOf(shape) {
  return shape.reduce((product, length) => product * length, 1);
}

/** Return the tensors of the untrained model by name: float32 numbers, one tensor after another. */
export async function readBase(shapes, base64) {
  const numbers = new Float32Array(await unpacked(base64));
  const tensors = {};
  let start = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    tensors[name] = numbers.subarray(start, (start += sizeOf(shape)));
  }
  return tensors;
}

/**
 * Return the tensors of a trained model: the base plus whole steps times their row's scale.
 *
 * `packed.scales` has one number per row of every tensor; a vector is one row.
 */
export async function readTrained(shapes, base, packed) {
  const steps = new Int8Array(await unpacked(packed.steps));
  const scales = new Float32Array(await unpacked(packed.scales));
  const tensors = {};
  let start = 0;
  let row = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    const width = shape[shape.length - 1];
    const trained = new Float32Array(sizeOf(shape));
    for (let i = 0; i < trained.length; i++) {
      const scale = scales[row + Math.floor(i / width)];
      trained[i] = base[name][i] + Math.fround(scale * steps[start + i]);
    }
    tensors[name] = trained;
    start += trained.length;
    row += trained.length / width;
  }
  return tensors;
}

/** Return matrix (rows, inputs) times x, plus a bias if there is one; 4 divides the inputs. */
function linear(matrix, x, bias) {
  const inputs = x.length;
  const y = new Float64Array(matrix.length / inputs);
  let place = 0;
  for (let row = 0; row < y.length; row++) {
    // Four sums do not wait for each other, which makes this three times as fast.
    let sum0 = bias ? bias[row] : 0;
    let sum1 = 0;
    let sum2 = 0;
    let sum3 = 0;
    for (let i = 0; i < inputs; i += 4, place += 4) {
      sum0 += matrix[place] * x[i];
      sum1 += matrix[place + 1] * x[i + 1];
      sum2 += matrix[place + 2] * x[i + 2];
      sum3 += matrix[place + 3] * x[i + 3];
    }
    y[row] = sum0 + sum1 + (sum2 + sum3);
  }
  return y;
}

function addTo(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
}

function silu(x) {
  return x / (1 + Math.exp(-x));
}

function softmax(scores) {
  const largest = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - largest));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

export class Model {
  /** Take {layers, heads, epsilon, frequencies, end, context} and tensors by name. */
  constructor(config, tensors, tokenizer) {
    this.config = config;
    this.tensors = tensors;
    this.tokenizer = tokenizer;
    this.headSize = 2 * config.frequencies.length;
    this.lastPrompt = { ids: [], cache: [], hidden: null };
  }

  /**
   * Answer a prompt with the noise of `key`; resolve to the text.
   *
   * Temperature 0 takes the most probable token. The reply ends with the end token or at `limit`.
   */
  async reply(prompt, { key, temperature, limit }) {
    const text = `<bos><user>${prompt}<assistant>`;
    const ids = this.tokenizer.encode(text);
    return this.tokenizer.decode(await this.generate(ids, { key, temperature, limit }));
  }

  async generate(promptIds, { key, temperature, limit }) {
    const room = Math.min(limit, this.config.context - promptIds.length);
    const noise = uniforms(key);
    let { cache, hidden } = await this.read(promptIds);
    const completion = [];
    while (completion.length < room) {
      await pauseWhenDue();
      const token = choose(this.logits(hidden), temperature, noise.next().value);
      completion.push(token);
      if (token === this.config.end) break;
      hidden = this.step(token, promptIds.length + completion.length - 1, cache);
    }
    return completion;
  }

  /** Read a prompt; resolve to the cache and the last hidden state. A repeated one is read once. */
  async read(promptIds) {
    if (this.lastPrompt.ids.join() !== promptIds.join()) {
      const layers = Array(this.config.layers).fill(null);
      const cache = layers.map(() => ({ keys: [], values: [] }));
      let hidden = null;
      for (const [position, id] of promptIds.entries()) {
        await pauseWhenDue();
        hidden = this.step(id, position, cache);
      }
      this.lastPrompt = { ids: promptIds, cache, hidden };
    }
    const { cache, hidden } = this.lastPrompt;
    const copy = ({ keys, values }) => ({ keys: [...keys], values: [...values] });
    return { cache: cache.map(copy), hidden };
  }

  /** Read one token; extend the cache and return the hidden state. */
  step(id, position, cache) {
    const embedding = this.tensors["model.embed_tokens.weight"];
    const size = this.tensors["model.norm.weight"].length;
    const x = Float64Array.from(embedding.subarray(id * size, (id + 1) * size));
    cache.forEach((layerCache, layer) => {
      const weight = (name) => this.tensors[`model.layers.${layer}.${name}`];
      const forAttention = this.norm(x, weight("input_layernorm.weight"));
      addTo(x, this.attention(forAttention, position, layerCache, weight));
      const forMlp = this.norm(x, weight("post_attention_layernorm.weight"));
      addTo(x, this.perceptron(forMlp, weight));
    });
    return x;
  }

  attention(x, position, layerCache, weight) {
    const projected = (name) =>
      linear(weight(`self_attn.${name}.weight`), x, weight(`self_attn.${name}.bias`));
    const queries = this.rotated(projected("q_proj"), position);
    layerCache.keys.push(this.rotated(projected("k_proj"), position));
    layerCache.values.push(projected("v_proj"));
    const mixed = new Float64Array(queries.length);
    for (let head = 0; head < this.config.heads; head++) {
      this.mixHead(head * this.headSize, queries, layerCache, mixed);
    }
    return linear(weight("self_attn.o_proj.weight"), mixed);
  }

  /** Write the mean of the cached values of one head, weighted by attention, into `mixed`. */
  mixHead(start, queries, { keys, values }, mixed) {
    const end = start + this.headSize;
    const scores = keys.map((key) => {
      let product = 0;
      for (let i = start; i < end; i++) product += queries[i] * key[i];
      return product / Math.sqrt(this.headSize);
    });
    softmax(scores).forEach((share, place) => {
      const value = values[place];
      for (let i = start; i < end; i++) mixed[i] += share * value[i];
    });
  }

  /** Rotate each pair (x_i, x_{i + half}) of every head by its angle at this position. */
  rotated(x, position) {
    const half = this.headSize / 2;
    const y = new Float64Array(x.length);
    this.config.frequencies.forEach((frequency, i) => {
      const angle = Math.fround(position * frequency);
      const cos = Math.cos(angle);
      const sin = Math.sin(angle);
      for (let start = i; start < x.length; start += this.headSize) {
        const first = x[start];
        const second = x[start + half];
        y[start] = first * cos - second * sin;
        y[start + half] = second * cos + first * sin;
      }
    });
    return y;
  }

  perceptron(x, weight) {
    const gate = linear(weight("mlp.gate_proj.weight"), x);
    const up = linear(weight("mlp.up_proj.weight"), x);
    const activated = gate.map((value, i) => silu(value) * up[i]);
    return linear(weight("mlp.down_proj.weight"), activated);
  }

  norm(x, weight) {
    let squares = 0;
    for (const value of x) squares += value * value;
    const scale = 1 / Math.sqrt(squares / x.length + this.config.epsilon);
    return x.map((value, i) => value * scale * weight[i]);
  }

  logits(hidden) {
    const normed = this.norm(hidden, this.tensors["model.norm.weight"]);
    return linear(this.tensors["model.embed_tokens.weight"], normed);
  }
}

/** Choose a token by inverting the cumulative distribution at a uniform number. */
function choose(logits, temperature, uniform) {
  if (temperature === 0) return logits.indexOf(Math.max(...logits));
  const probabilities = softmax(logits.map((logit) => logit / temperature));
  const total = probabilities.reduce((sum, probability) => sum + probability, 0);
  let cumulative = 0;
  for (let token = 0; token < probabilities.length; token++) {
    cumulative += probabilities[token];
    if (cumulative > uniform * total) return token;
  }
  return probabilities.length - 1;
}
