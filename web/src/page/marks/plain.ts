// Small things that several marks use.

import { number } from "../words";

export type Numbers = ArrayLike<number>;
/** With its sign, for terms of a sum. */
export const signed = (value: number, digits = 2): string => (value >= 0 ? "+" : "") + number(value, digits);

/** The largest magnitude of what is finite, at least `least`. */
export function reach(values: Numbers, least = 1e-12): number {
  let most = least;
  for (let at = 0; at < values.length; at++) {
    const size = Math.abs(values[at]);
    if (size > most && size < Infinity) most = size;
  }
  return most;
}

export function length(values: Numbers): number {
  let sum = 0;
  for (let at = 0; at < values.length; at++) sum += values[at] * values[at];
  return Math.sqrt(sum);
}

/** Round steps from 0 to at least `most`: 1, 2 or 5 times a power of ten. */
export function ticks(most: number, about = 4): number[] {
  if (!(most > 0) || !Number.isFinite(most)) return [0];
  const raw = most / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const by = [1, 2, 5, 10].find((each) => each * power >= raw)! * power;
  return Array.from({ length: Math.floor(most / by + 1e-9) + 1 }, (_, at) => at * by);
}

/** A curve from a point down or across to another, leaving and arriving upright. */
export const ribbon = (x0: number, y0: number, x1: number, y1: number): string => {
  const middle = (y0 + y1) / 2;
  return `M${x0} ${y0}C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}`;
};
