// The embedded model's tokenizer: byte-level BPE after a split into words, digits and signs.

const PIECES = new RegExp(
  "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]" +
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" +
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "gu",
);

/** Return the printable character that stands for each byte in the vocabulary. */
function byteCharacters() {
  const characters = [];
  let replaced = 0;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable =
      (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
    characters.push(String.fromCharCode(isPrintable ? byte : 256 + replaced++));
  }
  return characters;
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

export class Tokenizer {
  /** Take {vocabulary: {token: id}, merges: [[left, right]], added: [{id, content, special}]}. */
  constructor({ vocabulary, merges, added }) {
    this.vocabulary = vocabulary;
    this.rank = new Map(merges.map(([left, right], i) => [`${left} ${right}`, i]));
    this.addedId = new Map(added.map(({ content, id }) => [content, id]));
    this.special = new Set(added.filter((token) => token.special).map((token) => token.id));
    this.byteCharacters = byteCharacters();
    const longestFirst = [...this.addedId.keys()].sort((a, b) => b.length - a.length);
    this.added = new RegExp(`(${longestFirst.map(escaped).join("|")})`);
    this.bytesOf = this.bytesOfTokens();
  }

  bytesOfTokens() {
    const byteOf = new Map(this.byteCharacters.map((character, byte) => [character, byte]));
    const bytesOf = new Map();
    for (const [token, id] of Object.entries(this.vocabulary)) {
      bytesOf.set(id, [...token].map((character) => byteOf.get(character)));
    }
    for (const [content, id] of this.addedId) {
      bytesOf.set(id, [...new TextEncoder().encode(content)]);
    }
    return bytesOf;
  }

  encode(text) {
    const ids = [];
    // With its group in brackets, `split` keeps the added tokens, at odd places.
    text.split(this.added).forEach((part, place) => {
      if (place % 2) {
        ids.push(this.addedId.get(part));
        return;
      }
      for (const [piece] of part.matchAll(PIECES)) ids.push(...this.encodePiece(piece));
    });
    return ids;
  }

  encodePiece(piece) {
    let tokens = [...new TextEncoder().encode(piece)].map((byte) => this.byteCharacters[byte]);
    for (;;) {
      const pair = this.firstMerge(tokens);
      if (pair === null) break;
      tokens = merged(tokens, pair);
    }
    return tokens.map((token) => this.vocabulary[token]);
  }

  firstMerge(tokens) {
    let best = null;
    let bestRank = Infinity;
    for (let i = 0; i + 1 < tokens.length; i++) {
      const rank = this.rank.get(`${tokens[i]} ${tokens[i + 1]}`) ?? Infinity;
      if (rank < bestRank) {
        best = [tokens[i], tokens[i + 1]];
        bestRank = rank;
      }
    }
    return best;
  }

  /** Return the text of tokens, without special ones such as the end token. */
  decode(ids) {
    const shown = ids.filter((id) => !this.special.has(id));
    const bytes = shown.flatMap((id) => this.bytesOf.get(id));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
  }
}

function merged(tokens, [left, right]) {
  const joined = [];
  for (let i = 0; i < tokens.length; i++) {
    if (tokens[i] === left && tokens[i + 1] === right) {
      joined.push(left + right);
      i++;
    } else {
      joined.push(tokens[i]);
    }
  }
  return joined;
}
