// What an audience has not seen yet, because it guesses first.

export class Guesses {
  constructor() {
    this.verdicts = new Set(); // numbers of replies whose verdict is shown
    this.pay = new Set(); // of those whose pay is shown
  }

  /** Show what is known of replies: the verdict, and after the last turn the pay as well. */
  show(numbers, isComplete) {
    for (const number of numbers) {
      this.verdicts.add(number);
      if (isComplete) this.pay.add(number);
    }
  }

  /** Hide again what follows a reply that a visitor changes. */
  hideFrom(first) {
    for (const shown of [this.verdicts, this.pay]) {
      for (const number of shown) if (number >= first) shown.delete(number);
    }
  }
}

/** What is on show: the first `shown` turns of an episode, with or without guesses (null). */
export class Scene {
  /** `opened` holds the numbers of the first replies of those folds that are open. */
  constructor({ played, shown, guesses, opened }) {
    this.played = played;
    this.shown = shown;
    this.guesses = guesses;
    this.opened = opened;
    this.isComplete = shown >= played.replies.length;
  }

  /** Whether a verdict may tell the answer to a question; not to those who have yet to guess it. */
  get tellsMore() {
    return this.guesses === null || this.isSettled;
  }

  hidesVerdict({ number, turn }) {
    const isAsked = this.played.verdicts[number] !== null || turn.key !== undefined;
    return isAsked && this.guesses !== null && !this.guesses.verdicts.has(number);
  }

  /** Whether a reply is paid and its pay, settled by now, waits for a guess. */
  hidesPay(reply) {
    const isSettled = this.isComplete && this.played.payment(reply) !== null;
    return isSettled && this.guesses !== null && !this.guesses.pay.has(reply.number);
  }

  hides(reply) {
    return this.hidesVerdict(reply) || this.hidesPay(reply);
  }

  /** Whether all pay and every verdict on a paid reply is shown. */
  get isSettled() {
    const { replies } = this.played;
    const isPaid = (reply) => this.played.payment(reply) !== null;
    return this.isComplete && !replies.some((reply) => isPaid(reply) && this.hides(reply));
  }
}
