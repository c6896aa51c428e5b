// Numbers to pixels: a table of 256 strengths for every colour, so a million cells are a million look-ups.

import { blend, glassOf, INKS, isClear, Rgb, Theme } from "./colour";
import { Numbers, reach } from "./plain";
import { pixel } from "./scene";

const STRENGTHS = 256;
/** A cell that is there and zero is still tinted, so that its column is seen. */
const TINT: Record<Theme, number> = { light: 0.055, dark: 0.09 };

function table(colour: Rgb, ground: Rgb, from: number): Uint32Array {
  const made = new Uint32Array(STRENGTHS);
  for (let at = 0; at < STRENGTHS; at++) made[at] = pixel(blend(ground, colour, from + ((1 - from) * at) / (STRENGTHS - 1)));
  return made;
}

const tables = new Map<string, Uint32Array>();

/** Pixels by strength for a token's glass; the minus of all is lead. */
export function glassTable(token: string | null, look: Theme): Uint32Array {
  const key = `${look} ${token ?? ""}`;
  const known = tables.get(key);
  if (known) return known;
  const { ground, minus, clear } = INKS[look];
  const made = token === null ? table(minus, ground, 0) : table(isClear(token) ? clear : glassOf(token, look), ground, TINT[look]);
  if (tables.size > 4096) tables.clear();
  tables.set(key, made);
  return made;
}

/** What a cell that does not exist has as strength. */
export const NONE = -2;

/** Strengths from -1 to 1: the root of a share (so that small weights are seen), or a signed number beside the largest. */
export function strengths(values: Numbers, kind: "share" | "signed", most?: number): Float32Array {
  const made = new Float32Array(values.length);
  const scale = kind === "share" ? 1 / (most ?? 1) : 1 / (most ?? reach(values));
  for (let at = 0; at < values.length; at++) {
    const value = values[at];
    if (!(value > -Infinity)) made[at] = NONE;
    else if (kind === "share") made[at] = Math.sqrt(Math.min(1, Math.max(0, value * scale)));
    else made[at] = Math.max(-1, Math.min(1, value * scale));
  }
  return made;
}

/** Pixels of strengths; column j has the glass of token j, minus is lead, nothing is see-through. */
export function glaze(given: Float32Array, rows: number, columns: number, tokens: readonly string[], look: Theme, into = new Uint32Array(rows * columns)): Uint32Array {
  const plus = tokens.map((token) => glassTable(token, look));
  const minus = glassTable(null, look);
  for (let row = 0, at = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, at++) {
      const strength = given[at];
      into[at] = strength < -1 ? 0 : strength < 0 ? minus[(-strength * 255) | 0] : plus[column][(strength * 255) | 0];
    }
  }
  return into;
}

/** The largest of every patch, so that a small picture of a large map keeps its lines. */
export function pooled(given: Float32Array, side: number, to: number): Float32Array {
  if (side <= to) return given;
  const made = new Float32Array(to * to).fill(NONE);
  for (let row = 0; row < side; row++) {
    const top = Math.floor((row * to) / side) * to;
    for (let column = 0; column < side; column++) {
      const at = top + Math.floor((column * to) / side);
      const strength = given[row * side + column];
      if (made[at] === NONE || Math.abs(strength) > Math.abs(made[at])) if (strength >= -1) made[at] = strength;
    }
  }
  return made;
}

// ---------------------------------------------------------------------------------------------------------------- vectors

/** Columns and rows of a vector's pane, about four to three. */
export function paneShape(width: number): { across: number; down: number } {
  const wanted = Math.max(1, Math.round(Math.sqrt(width * 0.75)));
  for (let down = wanted; down >= wanted * 0.6; down--) if (width % down === 0) return { across: width / down, down };
  return { across: Math.ceil(width / wanted), down: wanted };
}

/** The panes of a row of vectors [time, d] side by side: colour for plus, lead for minus, as dim as `strength` says. */
export function strips(vectors: Numbers, tokens: readonly string[], strength: (at: number) => number, order: Numbers | undefined, look: Theme) {
  const width = tokens.length ? vectors.length / tokens.length : 0;
  const { across, down } = paneShape(width);
  const wide = across * tokens.length;
  const pixels = new Uint32Array(wide * down);
  const minus = glassTable(null, look);
  const own = new Float64Array(across * down);
  tokens.forEach((token, time) => {
    const plus = glassTable(token, look);
    for (let at = 0; at < width; at++) own[at] = vectors[time * width + (order ? order[at] : at)];
    const most = reach(own);
    const bright = strength(time) * 255;
    for (let row = 0, at = 0; row < down; row++)
      for (let place = row * wide + time * across, end = place + across; place < end; place++, at++)
        pixels[place] = (own[at] < 0 ? minus : plus)[(Math.sqrt(Math.abs(own[at]) / most) * bright) | 0];
  });
  return { pixels, columns: wide, rows: down, group: across };
}

/**
 * An order of dimensions in which those that move together lie together: by their angle in the plane of the two strongest
 * directions of these vectors [count, width].
 */
export function seriate(vectors: Numbers, width: number): Uint32Array {
  const count = vectors.length / width;
  const mean = new Float64Array(width);
  for (let at = 0; at < vectors.length; at++) mean[at % width] += vectors[at] / count;
  const directions: Float64Array[] = [];
  for (let which = 0; which < 2; which++) {
    let direction = Float64Array.from({ length: width }, (_, at) => Math.sin(1 + at * (which + 1) * 1.7));
    for (let round = 0; round < 24; round++) {
      const made = new Float64Array(width);
      for (let row = 0; row < count; row++) {
        let along = 0;
        for (let at = 0; at < width; at++) along += (vectors[row * width + at] - mean[at]) * direction[at];
        for (let at = 0; at < width; at++) made[at] += along * (vectors[row * width + at] - mean[at]);
      }
      for (const other of directions) {
        const shared = made.reduce((sum, each, at) => sum + each * other[at], 0);
        for (let at = 0; at < width; at++) made[at] -= shared * other[at];
      }
      const size = Math.sqrt(made.reduce((sum, each) => sum + each * each, 0)) || 1;
      direction = made.map((each) => each / size);
    }
    directions.push(direction);
  }
  const angle = Float64Array.from({ length: width }, (_, at) => Math.atan2(directions[1][at], directions[0][at]));
  return Uint32Array.from({ length: width }, (_, at) => at).sort((one, other) => angle[one] - angle[other] || one - other);
}
