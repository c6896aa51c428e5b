// Which cell is open, and the ones before it, as signals. Any pane opens a cell with `open(name, index)`.

import { computed, effect, signal } from "@preact/signals";
import { block, head, position, shown, source } from "../state";
import { Anatomy, Opened, Sheet, Spot } from "./opening";

/** The cells that were opened, each from the one before; empty: the largest weight of the chosen token. */
export const trail = signal<readonly Spot[]>([]);
/** Places of the sentence that the pointed number is of. */
export const marked = signal<readonly number[]>([]);
export const anatomy = signal<Anatomy | null>(null);
/** Counts numbers that were fetched, so that what is open is read again. */
const fetched = signal(0);

effect(() => {
  const from = source.value;
  anatomy.value = null;
  void from?.anatomy?.().then((found) => source.peek() === from && (anatomy.value = found));
});

export const sheet = computed<Sheet | null>(() => {
  const now = shown.value;
  return now && anatomy.value ? new Sheet(anatomy.value, now.ids, now.values, now.edits) : null;
});

/** What is open where nobody has chosen: the largest weight of the chosen token's row, or its first logit. */
export const otherwise = computed<Spot | null>(() => {
  const now = shown.value;
  if (!now) return null;
  const layers = Object.keys(now.values).filter((name) => name.endsWith(".attn.weights"));
  const own = `blocks.${block.value}.attn.weights`;
  const name = layers.includes(own) ? own : (layers[0] ?? "logits");
  const { shape, data } = now.values[name];
  const rest = shape.length === 4 ? [0, Math.min(head.value, shape[1] - 1), position.value] : [0, position.value];
  const width = shape[shape.length - 1];
  const start = rest.reduce((place, each, axis) => place * shape[axis] + each, 0) * width;
  let most = 0;
  for (let column = 1; column < width; column++) if (data[start + column] > data[start + most]) most = column;
  return { name, index: [...rest, most], path: [] };
});

/** The cells on the way to the one that is open; those that the sentence no longer has are left out. */
export const way = computed<readonly Spot[]>(() => {
  const kept = trail.value.filter((spot) => sheet.value?.has(spot));
  return kept.length ? kept : otherwise.value ? [otherwise.value] : [];
});

export const current = computed<Opened | null>(() => {
  void fetched.value;
  const spot = way.value[way.value.length - 1];
  return (spot && sheet.value?.open(spot)) ?? null;
});

effect(() => {
  const missing = current.value?.missing ?? {};
  const bring = anatomy.value?.bring;
  if (bring && Object.keys(missing).length) void bring(missing).then(() => fetched.value++);
});

/** Opens a cell of a named value, as the first of a new way. */
export function open(name: string, index: readonly number[]): void {
  trail.value = [{ name, index, path: [] }];
}

/** Opens a number of what is open. */
export function go(spot: Spot): void {
  trail.value = [...way.value, spot];
  marked.value = [];
}

/** Back to a cell on the way: the one before, if none is given. */
export function back(to = way.value.length - 2): void {
  if (to >= 0) trail.value = way.value.slice(0, to + 1);
  marked.value = [];
}
