// Python's random.Random: the Mersenne Twister MT19937 and the draws that episodes make.

const SIZE = 624;
const SHIFT = 397;
const SETSIZE = 21; // random.sample draws from larger populations in another way

export class Random {
  /** Seed as random.Random(seed) does; the seed is a whole number from 0 to 2**32 - 1. */
  constructor(seed) {
    this.words = new Uint32Array(SIZE);
    this.position = SIZE;
    const words = this.words;
    words[0] = 19650218;
    for (let i = 1; i < SIZE; i++) words[i] = Math.imul(1812433253, this.mixed(i)) + i;
    let i = 1;
    for (let k = SIZE; k; k--) {
      words[i] = (words[i] ^ Math.imul(this.mixed(i), 1664525)) + seed;
      i = this.following(i);
    }
    for (let k = SIZE - 1; k; k--) {
      words[i] = (words[i] ^ Math.imul(this.mixed(i), 1566083941)) - i;
      i = this.following(i);
    }
    words[0] = 0x80000000;
  }

  mixed(i) {
    const before = this.words[i - 1];
    return before ^ (before >>> 30);
  }

  following(i) {
    if (i + 1 < SIZE) return i + 1;
    this.words[0] = this.words[SIZE - 1];
    return 1;
  }

  refill() {
    const words = this.words;
    for (let i = 0; i < SIZE; i++) {
      const joined = (words[i] & 0x80000000) | (words[(i + 1) % SIZE] & 0x7fffffff);
      const twist = joined & 1 ? 0x9908b0df : 0;
      words[i] = words[(i + SHIFT) % SIZE] ^ (joined >>> 1) ^ twist;
    }
    this.position = 0;
  }

  word() {
    if (this.position === SIZE) this.refill();
    let word = this.words[this.position++];
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  }

  /** Return a number in [0, 1). */
  random() {
    const high = this.word() >>> 5;
    const low = this.word() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }

  /** Return a whole number from 0 to count - 1. */
  randrange(count) {
    const bits = 32 - Math.clz32(count);
    let drawn = count;
    while (drawn >= count) drawn = this.word() >>> (32 - bits);
    return drawn;
  }

  choice(items) {
    return items[this.randrange(items.length)];
  }

  /** Draw distinct items, in random order. */
  sample(items, count) {
    if (items.length > SETSIZE || count > 5) {
      throw new RangeError(`sample draws at most 5 of ${SETSIZE} items`);
    }
    const pool = [...items];
    const drawn = [];
    for (let i = 0; i < count; i++) {
      const last = pool.length - i - 1;
      const j = this.randrange(last + 1);
      drawn.push(pool[j]);
      pool[j] = pool[last];
    }
    return drawn;
  }
}
