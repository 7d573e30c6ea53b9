// Small helpers that all methods share.

/** Return the mean of the values that are not null, or null if there is none. */
export function meanKnown(values) {
  const known = values.filter((value) => value !== null).map(Number);
  if (known.length === 0) return null;
  return known.reduce((sum, value) => sum + value, 0) / known.length;
}

/** Write a reward with two decimals and, if it is negative, a true minus sign. */
export function amount(value) {
  return value === null ? "–" : value.toFixed(2).replace("-", "−");
}
