// The sampling noise of a reply, as in coevolve/models/sampler.py: numpy's Philox generator, keyed
// by a hash of the turn's key. All words have 64 bits, hence BigInt.

const WORD64 = 0xffffffffffffffffn;

// BLAKE2b (RFC 7693).

const BLAKE_START = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const BLAKE_ORDER = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
  [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
  [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
  [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
  [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
  [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
const BLAKE_ROUNDS = 12;
const BLAKE_COLUMNS_AND_DIAGONALS = [
  [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
  [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
];

function rotateRight(word, bits) {
  return ((word >> bits) | (word << (64n - bits))) & WORD64;
}

function mix(state, [a, b, c, d], x, y) {
  state[a] = (state[a] + state[b] + x) & WORD64;
  state[d] = rotateRight(state[d] ^ state[a], 32n);
  state[c] = (state[c] + state[d]) & WORD64;
  state[b] = rotateRight(state[b] ^ state[c], 24n);
  state[a] = (state[a] + state[b] + y) & WORD64;
  state[d] = rotateRight(state[d] ^ state[a], 16n);
  state[c] = (state[c] + state[d]) & WORD64;
  state[b] = rotateRight(state[b] ^ state[c], 63n);
}

/** Return the first 16 bytes of the BLAKE2b digest of ASCII text up to 128 characters, as words. */
export function blake2b(text) {
  if (text.length > 128) throw new RangeError(`a key of ${text.length} characters, at most 128`);
  const block = new DataView(new ArrayBuffer(128));
  for (let i = 0; i < text.length; i++) block.setUint8(i, text.charCodeAt(i));
  const message = [];
  for (let i = 0; i < 16; i++) message.push(block.getBigUint64(8 * i, true));

  const hash = [...BLAKE_START];
  hash[0] ^= 0x01010010n; // no key, and a digest of 16 bytes
  const state = [...hash, ...BLAKE_START];
  state[12] ^= BigInt(text.length);
  state[14] ^= WORD64; // the last block
  for (let round = 0; round < BLAKE_ROUNDS; round++) {
    const order = BLAKE_ORDER[round % BLAKE_ORDER.length];
    BLAKE_COLUMNS_AND_DIAGONALS.forEach((places, i) => {
      mix(state, places, message[order[2 * i]], message[order[2 * i + 1]]);
    });
  }
  return [0, 1].map((i) => hash[i] ^ state[i] ^ state[i + 8]);
}

// Philox4x64-10 (Salmon et al. 2011), as numpy runs it.

const PHILOX_FACTORS = [0xd2e7470ee14c6c93n, 0xca5a826395121157n];
const PHILOX_WEYL = [0x9e3779b97f4a7c15n, 0xbb67ae8584caa73bn];
const PHILOX_ROUNDS = 10;

function philoxBlock(counter, key) {
  let words = [counter, 0n, 0n, 0n];
  let [key0, key1] = key;
  for (let round = 0; round < PHILOX_ROUNDS; round++) {
    const product0 = PHILOX_FACTORS[0] * words[0];
    const product1 = PHILOX_FACTORS[1] * words[2];
    words = [
      (product1 >> 64n) ^ words[1] ^ key0,
      product1 & WORD64,
      (product0 >> 64n) ^ words[3] ^ key1,
      product0 & WORD64,
    ];
    key0 = (key0 + PHILOX_WEYL[0]) & WORD64;
    key1 = (key1 + PHILOX_WEYL[1]) & WORD64;
  }
  return words;
}

/** Yield the uniform numbers in [0, 1) of a turn's key, such as [253, 0, 0, 3], without end. */
export function* uniforms(key) {
  const asPythonWritesIt = `(${key.join(", ")})`;
  const philoxKey = blake2b(asPythonWritesIt);
  for (let counter = 1n; ; counter++) {
    for (const word of philoxBlock(counter, philoxKey)) {
      yield Number(word >> 11n) * 2 ** -53;
    }
  }
}
