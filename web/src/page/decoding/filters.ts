// From logits to probabilities.

/** Softmax of the logits divided by a temperature; temperature 0 is the most probable token. */
export function probabilities(logits: ArrayLike<number>, temperature: number): Float64Array {
  const made = Float64Array.from(logits);
  const most = made.reduce((one, other) => Math.max(one, other), -Infinity);
  if (temperature === 0) return made.map((each) => +(each === most)).map((each, _, all) => each / all.reduce((one, other) => one + other, 0));
  let sum = 0;
  for (let place = 0; place < made.length; place++) sum += made[place] = Math.exp((made[place] - most) / temperature);
  return made.map((each) => each / sum);
}
