// JSON objects in the replies of SPICE's Challenger, read as Python's decoder does.

const OPENING_BRACE = /\{\s*"/g;
const SPACE = /[ \t\n\r]*/y;
const JSON_STRING = /"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const JSON_NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const JSON_WORD = /true|false|null/y;
const MAX_OPENINGS = 64;
const WORDS_OF_JSON = { true: true, false: false, null: null };

/** A reader of JSON at a place in a text; `fail` throws the place of the error. */
class JsonReader {
  constructor(text, place) {
    this.text = text;
    this.place = place;
  }

  match(pattern) {
    pattern.lastIndex = this.place;
    const found = pattern.exec(this.text);
    if (found === null) return null;
    this.place += found[0].length;
    return found[0];
  }

  fail() {
    throw new JsonError(this.place);
  }

  skip(character) {
    this.match(SPACE);
    if (this.text[this.place] !== character) return false;
    this.place++;
    return true;
  }

  expect(character) {
    if (!this.skip(character)) this.fail();
  }

  object() {
    this.expect("{");
    const fields = new Map();
    if (this.skip("}")) return fields;
    do {
      this.match(SPACE);
      const key = JSON.parse(this.match(JSON_STRING) ?? this.fail());
      this.expect(":");
      if (fields.has(key)) throw new JsonError(null);
      fields.set(key, this.value());
    } while (this.skip(","));
    this.expect("}");
    return fields;
  }

  value() {
    this.match(SPACE);
    const next = this.text[this.place];
    if (next === "{") return this.object();
    if (next === "[") return this.list();
    if (next === '"') return JSON.parse(this.match(JSON_STRING) ?? this.fail());
    const word = this.match(JSON_WORD);
    if (word !== null) return WORDS_OF_JSON[word];
    return Number(this.match(JSON_NUMBER) ?? this.fail());
  }

  list() {
    this.expect("[");
    const items = [];
    if (this.skip("]")) return items;
    do items.push(this.value());
    while (this.skip(","));
    this.expect("]");
    return items;
  }
}

/** Where reading failed; null where the reply is unreadable as a whole. */
class JsonError extends Error {
  constructor(place) {
    super("not JSON");
    this.place = place;
  }
}

/** Return the object that ends a text, as a Map; null if there is none. */
export function jsonObject(text) {
  const trimmed = text.trimEnd();
  let place = 0;
  for (let i = 0; i < MAX_OPENINGS; i++) {
    OPENING_BRACE.lastIndex = place;
    const opening = OPENING_BRACE.exec(trimmed);
    if (opening === null) return null;
    const reader = new JsonReader(trimmed, opening.index);
    try {
      const fields = reader.object();
      return reader.place === trimmed.length ? fields : null;
    } catch (error) {
      if (!(error instanceof JsonError) || error.place === null) return null;
      place = Math.max(error.place, opening.index + 1);
    }
  }
  return null;
}
