// Edits of named activations: the JSON of vitral.inspection.edits as functions of tensors, for graph.ts and for any source.

import type { Edit } from "./source";
import { t } from "./words";

/** [batch, time, width], or [batch, heads, time, width]; -inf is a key that the mask forbids. */
export interface Cells {
  readonly shape: readonly number[];
  readonly data: Float32Array | Float64Array;
}

/** The activation of a patch's other sentence. */
export type Others = (edit: Edit) => Cells | undefined;

/** The key that a kind of edit needs; no other kind takes it. */
const NEEDS: Record<Edit["do"], "factor" | "value" | "from" | null> = {
  zero: null,
  mean: null,
  scale: "factor",
  set: "value",
  patch: "from",
};
/** The largest number of float32. */
const MOST = (2 - 2 ** -23) * 2 ** 127;
const KEYS = ["at", "heads", "positions", "columns", "do", "factor", "value", "from"];

const numbers = (given: unknown): boolean =>
  Array.isArray(given) && given.length > 0 && given.every((each) => Number.isInteger(each) && each >= 0 && each < 2 ** 31);

/** Whether something, such as JSON from an address, is one edit; names, heads and positions may still not exist. */
export function isEdit(given: unknown): given is Edit {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return false;
  const edit = given as Record<string, unknown>;
  const there = (key: string) => edit[key] !== undefined && edit[key] !== null;
  if (!Object.keys(edit).every((key) => KEYS.includes(key)) || typeof edit.at !== "string") return false;
  if (typeof edit.do !== "string" || !Object.keys(NEEDS).includes(edit.do)) return false;
  const needed = NEEDS[edit.do as Edit["do"]];
  if (["factor", "value", "from"].some((key) => there(key) !== (key === needed))) return false;
  if (needed === "from" ? typeof edit.from !== "string" : needed && !Number.isFinite(edit[needed])) return false;
  if (needed === "value" && Math.abs(edit.value as number) > MOST) return false;
  if (["heads", "columns"].some((key) => there(key) && !numbers(edit[key]))) return false;
  return edit.positions === undefined || edit.positions === "all" || numbers(edit.positions);
}

/** What an edit does, as a line. */
export function told({ at, heads, positions, columns, do: what, factor, value, from }: Edit): string {
  const all = (places?: number[] | "all") => (!places || places === "all" ? ":" : places.length > 1 ? `[${places.join(", ")}]` : places[0]);
  const some = `${heads ? `[${heads.join(", ")}]` : ""}${positions === "all" ? "" : `@${positions.join(", ")}`}`;
  const of = columns ? `${at}[0, ${heads ? `${all(heads)}, ` : ""}${all(positions)}, ${all(columns)}]` : at + some;
  if (what === "scale") return `${of} × ${factor}`;
  if (what === "patch") return t("{name} as in “{text}”", { name: of, text: from! });
  return what === "mean" ? t("{name} = its mean", { name: of }) : `${of} = ${value ?? 0}`;
}

/** The edits that JSON says, each with its positions; null if one of them is none. */
export function readEdits(given: unknown): Edit[] | null {
  if (!Array.isArray(given) || !given.every(isEdit)) return null;
  return given.map((each) => ({ ...each, positions: each.positions ?? "all" }));
}

/** Whether the edit's heads, positions and columns exist in an activation of this shape. */
export function fits(edit: Edit, shape: readonly number[]): boolean {
  const heads = shape.length === 4 ? shape[1] : 0;
  const time = shape[shape.length - 2];
  const below = (places: number[] | "all" | null | undefined, most: number) =>
    !Array.isArray(places) || places.every((each) => each < most);
  return below(edit.heads, heads) && below(edit.positions, time) && below(edit.columns, shape[shape.length - 1]);
}

/**
 * The edits of a sentence that still grows: positions that do not exist yet are left out until they do. A patch counts where
 * both sentences have a position; a patch of a map of attention only while they are equally long.
 */
export function existing(edits: readonly Edit[], time: number, others?: Others): Edit[] {
  return edits.flatMap((each) => {
    const theirs = (each.do === "patch" && others?.(each)?.shape.slice(-2)[0]) || time;
    const isBetween = /\.(scores|scaled|masked|weights)$/.test(each.at);
    if (theirs !== time && isBetween) return [];
    if (each.columns && isBetween) each = { ...each, columns: each.columns.filter((column) => column < time) };
    if (each.columns?.length === 0) return [];
    if (each.positions === "all" && theirs === time) return [each];
    const both = Math.min(time, theirs);
    const chosen = each.positions === "all" ? Array.from({ length: both }, (_, place) => place) : each.positions;
    const positions = chosen.filter((place) => place < both);
    return positions.length ? [{ ...each, positions }] : [];
  });
}

/** An activation after one edit; `other` is the other sentence's activation of a patch. */
export function edited<T extends Cells>(value: T, edit: Edit, other?: Cells): T {
  const { shape } = value;
  if (!fits(edit, shape)) throw new Error(t("{name} has no such head, position or column", { name: edit.at }));
  const [time, width] = shape.slice(-2);
  const heads = shape.length === 4 ? shape[1] : 1;
  const data = value.data.slice();
  const positions = Array.isArray(edit.positions) ? edit.positions : Array.from({ length: time }, (_, place) => place);
  const columns = edit.columns ?? Array.from({ length: width }, (_, column) => column);
  const rule = replacement(edit, value.data, time, width, other);
  for (let row = 0; row < data.length / (time * width); row++) {
    if (edit.heads && !edit.heads.includes(row % heads)) continue;
    for (const column of columns) {
      const put = rule(row, column);
      for (const position of positions) {
        const cell = (row * time + position) * width + column;
        if (value.data[cell] !== -Infinity) data[cell] = put(value.data[cell], position);
      }
    }
  }
  return { ...value, data };
}

type Put = (cell: number, position: number) => number;

/** For each row (of a batch and a head) and column, what takes the place of a cell. */
function replacement(
  edit: Edit, data: Cells["data"], time: number, width: number, other?: Cells,
): (row: number, column: number) => Put {
  switch (edit.do) {
    case "zero":
      return () => () => 0;
    case "set":
      return () => () => edit.value!;
    case "scale":
      return () => (cell) => cell * edit.factor!;
    case "mean":
      return (row, column) => {
        let total = 0;
        let count = 0;
        for (let position = 0; position < time; position++) {
          const cell = data[(row * time + position) * width + column];
          if (cell === -Infinity) continue;
          total += cell;
          count++;
        }
        const mean = total / Math.max(count, 1);
        return () => mean;
      };
    case "patch": {
      const [theirs, wide] = other?.shape.slice(-2) ?? [];
      const enough = Array.isArray(edit.positions) ? edit.positions.every((each) => each < theirs) : theirs === time;
      if (!other || wide !== width || !enough) throw new Error(t("{name} cannot be patched: the other sentence is of another length, or has no tokens", { name: edit.at }));
      const rows = other.data.length / (theirs * wide);
      return (row, column) => (_, position) => other.data[((row % rows) * theirs + position) * wide + column];
    }
  }
}

/** The edits as one function for each activation, in their order; `others` gives the other sentence's values. */
export function editing<T extends Cells>(
  edits: readonly Edit[], others?: Others,
): Record<string, (value: T) => T> {
  const made: Record<string, (value: T) => T> = {};
  for (const edit of edits) {
    const before = made[edit.at] ?? ((value: T) => value);
    made[edit.at] = (value) => edited(before(value), edit, edit.do === "patch" ? others?.(edit) : undefined);
  }
  return made;
}
