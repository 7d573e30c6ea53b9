// An episode with what is known about each reply; nothing here draws.

const WELL_PAID = 0.7;
const BADLY_PAID = 0.1;
const ROLE_COLOURS = 5;
const FEWEST_FOLDED = 3;

/** What pay and oracle say together about a reply; null where they do not clash. */
export function clash(verdict, reward) {
  if (verdict === null || reward === null) return null;
  if (verdict.ok === false && reward >= WELL_PAID) return "well paid, and wrong";
  if (verdict.text === "right" && reward <= BADLY_PAID) return "right, and not paid";
  return null;
}

/**
 * An episode, for showing.
 *
 * Its waves have `steps`, each of one reply or of several that look alike and are folded.
 */
export class Played {
  /** `original` is the episode without the visitor's changes, or null. */
  constructor({ waves, payments }, original = null) {
    this.replies = waves.flatMap((wave) => wave.replies);
    this.paymentOf = new Map(payments.map((payment) => [payment.reply.number, payment]));
    this.original = original;
    this.waves = waves.map((wave) => ({ ...wave, steps: this.stepsOf(wave.replies) }));
    this.speakers = [...new Set(this.replies.map(({ turn }) => colourName(turn.speaker)))];
    const rewards = payments.map(({ reward }) => Math.abs(reward ?? 0));
    this.largest = Math.max(1, ...rewards);
    this.verdicts = this.replies.map(({ turn, text }) => turn.check(text));
  }

  payment(reply) {
    return this.paymentOf.get(reply.number) ?? null;
  }

  clashOf(reply) {
    return clash(this.verdicts[reply.number], this.payment(reply)?.reward ?? null);
  }

  /** The replies, among the first `shown`, in which a model judges this one. */
  judgementsOf(reply, shown) {
    const isOfReply = ({ number, turn }) => turn.judges === reply && number < shown;
    return this.replies.filter(isOfReply);
  }

  /** Whether the model's own judge or key says of a reply what the oracle does not. */
  isMisjudged(reply, shown) {
    const { turn, text, number } = reply;
    const verdict = this.verdicts[number];
    const isWronglyJudged = (judgement) => this.verdicts[judgement.number]?.ok === false;
    if (this.judgementsOf(reply, shown).some(isWronglyJudged)) return true;
    const isKnown = turn.key !== undefined && verdict !== null && verdict.ok !== null;
    return isKnown && turn.key(text).ok !== verdict.ok;
  }

  /** The reward of the same turn before the visitor's changes, if it was another one. */
  rewardBefore(reply) {
    const now = this.payment(reply)?.reward ?? null;
    const before = this.original?.paymentOf.get(reply.number)?.reward ?? null;
    return before === null || before === now ? null : before;
  }

  isChanged(reply) {
    const before = this.original?.replies[reply.number];
    return before !== undefined && before.text !== reply.text;
  }

  colour(speaker) {
    const place = this.speakers.indexOf(colourName(speaker)) % ROLE_COLOURS;
    return `--role: var(--role-${place})`;
  }

  // Steps.

  stepsOf(replies) {
    const runs = [];
    for (const reply of replies) {
      const run = runs.at(-1);
      if (run && this.isAlike(run[0], reply)) run.push(reply);
      else runs.push([reply]);
    }
    return runs.flatMap((run) => (run.length < FEWEST_FOLDED ? run.map((one) => [one]) : [run]));
  }

  /** Whether two replies may be folded into one: neither is paid, and both are of one kind. */
  isAlike(one, other) {
    if (this.payment(one) || this.payment(other)) return false;
    const { many, topic } = one.turn;
    return many !== undefined && many === other.turn.many && topic === other.turn.topic;
  }

  /** How many turns are shown after the step that follows the first `shown`. */
  nextStop(shown) {
    const steps = this.waves.flatMap((wave) => wave.steps);
    const stops = steps.map((step) => step.at(-1).number + 1);
    return stops.find((stop) => stop > shown) ?? this.replies.length;
  }
}

/** A Solver that tries has the colour of the Solver. */
function colourName(speaker) {
  return speaker.replace(", a try", "");
}

/** Write what several replies say, each wording once: "3 (4 times), 5". */
export function saidByMany(replies) {
  const counts = new Map();
  for (const { turn, text } of replies) {
    const said = turn.brief(text);
    counts.set(said, (counts.get(said) ?? 0) + 1);
  }
  return [...counts].map(([said, n]) => (n > 1 ? `${said} (${n} times)` : said)).join(", ");
}

/** Write what the oracle says of several replies. */
export function verdictOnMany(played, replies) {
  const verdicts = replies.map(({ number }) => played.verdicts[number]?.ok ?? null);
  const known = verdicts.filter((ok) => ok !== null);
  if (known.length === 0) return "the oracle has no verdict";
  const right = known.filter(Boolean).length;
  const { judges, key } = replies[0].turn;
  if (judges) return `the oracle agrees with ${right} of ${replies.length}`;
  if (!key) return `${right} of ${replies.length} right`;
  const asKeyed = replies.filter((reply) => reply.turn.key(reply.text).ok).length;
  return `the key calls ${asKeyed} of ${replies.length} right, the oracle ${right}`;
}

// Another episode.

const MOST_TRIED = 10;
const SEEDS = 2 ** 32;

/**
 * Whether a class has something to argue about in an episode.
 *
 * Of the paid replies the oracle calls one right and one wrong, not all are paid the same, and
 * somebody tries a question if one is made up.
 */
export function isInteresting(played) {
  const paid = played.replies.filter((reply) => (played.payment(reply)?.reward ?? null) !== null);
  const verdicts = paid.map(({ number }) => played.verdicts[number]?.ok);
  const rewards = new Set(paid.map((reply) => played.payment(reply).reward.toFixed(6)));
  const isMixed = verdicts.includes(true) && verdicts.includes(false) && rewards.size > 1;
  const turns = played.replies.map(({ turn }) => turn);
  return isMixed && (!turns.some(({ proposes }) => proposes) || turns.some(({ tries }) => tries));
}

/**
 * Resolve to the next seed whose episode is interesting, or to the very next if none is soon.
 *
 * `playSeed(seed)` resolves to what is played, or to null to give up; then so does this.
 */
export async function anotherSeed(seed, playSeed) {
  for (let tried = 1; tried <= MOST_TRIED; tried++) {
    const candidate = (seed + tried) % SEEDS;
    const played = await playSeed(candidate);
    if (played === null) return null;
    if (isInteresting(played)) return candidate;
  }
  return (seed + 1) % SEEDS;
}
