// Which cell is open, and the ones before it, as signals. Any pane opens a cell with `open(name, index)`.

import { batch, computed, effect, signal } from "@preact/signals";
import type { Edit, Source, Values } from "../source";
import { FEW, block, fault, head, origin, position, shown, terms, trail } from "../state";
import { largest, row, rowOf } from "../rows";
import { headOf, isSlow } from "../wanted";
import { reasonOf } from "../words";
import { Anatomy, Needed, Opened, Sheet, Spot } from "./opening";

/** Places of the sentence that the pointed number is of. */
const pointed = signal<{ of: Opened | null; places: readonly number[] }>({ of: null, places: [] });
export const marked = computed(() => (pointed.value.of === current.value ? pointed.value.places : []));
export const mark = (places: readonly number[]): void => void (pointed.value = { of: current.peek(), places });
export const anatomy = signal<Anatomy | null>(null);
/** Why no cell can be opened, if none can: a model without a graph. */
export const closed = signal("");
/** Values of one sentence that were fetched because a cell was opened. */
const more = signal<{ ids: readonly number[]; edits: readonly Edit[]; values: Values } | null>(null);
/** Counts numbers that were fetched, so that what is open is read again. */
const fetched = signal(0);

/** Whether the arithmetic waits for somebody who opens a cell. */
export const isWaiting = computed(() => Boolean(origin.value?.about.served && isSlow(origin.value.about) && !trail.value.length));

let owner: Source | null = null;
effect(() => {
  const from = origin.value;
  if (from !== owner) batch(() => ((anatomy.value = null), (closed.value = "")));
  owner = from;
  if (isWaiting.value || anatomy.peek()) return;
  from?.anatomy?.().then(
    (found) => origin.peek() === from && (anatomy.value = found),
    (error: unknown) => origin.peek() === from && (closed.value = reasonOf(error)),
  );
});

export const sheet = computed<Sheet | null>(() => {
  const now = shown.value;
  if (!now || !anatomy.value) return null;
  const own = more.value?.ids === now.ids && more.value.edits === now.edits ? more.value.values : {};
  return new Sheet(anatomy.value, now.ids, { ...own, ...now.values }, now.edits);
});

/** What is open where nobody has chosen: query times key at the largest weight of the chosen token's row, or its first logit. */
export const otherwise = computed<Spot | null>(() => {
  const now = shown.value;
  if (!now) return null;
  const layers = Object.keys(now.values).filter((name) => /^b.*\.attn\.weights$/.test(name));
  const own = `blocks.${block.value}.attn.weights`;
  const name = headOf(now.values, own, head.value) ? own : (layers[0] ?? "logits");
  const map = headOf(now.values, name, head.value);
  const isMap = map?.[0].shape.length === 4;
  const rest = isMap ? [0, Math.min(head.value, origin.value!.about.heads - 1), position.value] : origin.value!.about.labels ? [0] : [0, position.value];
  const numbers = isMap ? row(map[0], 0, Math.min(map[1], rest[1]), position.value) : rowOf(now.values, name, rest[1] ?? 0);
  return { name: name.replace(/weights$/, "scores"), index: [...rest, largest(numbers, 1)[0]], path: [] };
});

/** The cells on the way to the one that is open; those that the sentence no longer has are left out. */
export const way = computed<readonly Spot[]>(() => {
  const kept = trail.value.filter((spot) => sheet.value?.has(spot));
  return kept.length ? kept : otherwise.value ? [otherwise.value] : [];
});

/** What is open, and what has to be fetched first. */
const read = computed<{ opened: Opened | null; needed: Needed | null; round: number }>(() => {
  const spot = way.value[way.value.length - 1];
  const from = sheet.value;
  const opened = (spot && from?.open(spot)) ?? null;
  // The bundler drops a signal that is read for nothing.
  return { opened, needed: from?.needed() ?? null, round: fetched.value };
});
let last: Opened | null = null;
/** What is open; while its numbers are fetched, what was open before. */
export const current = computed<Opened | null>(() => {
  if (!read.value.needed) last = read.value.opened;
  return last && sheet.value?.has(last.spot) ? last : null;
});

effect(() => {
  const [{ needed }, from, now, parts] = [read.value, origin.peek(), shown.peek(), anatomy.peek()];
  if (needed && from && now && parts) void bring(needed, from, now, parts);
});

async function bring(needed: Needed, from: Source, { ids, edits }: { ids: number[]; edits: Edit[] }, parts: Anatomy): Promise<void> {
  try {
    await parts.bring?.(needed.constants);
    const found = needed.values.length ? await from.trace(ids, needed.values, edits) : {};
    // What was learned of constants stays, whatever is shown now.
    if (shown.peek()?.ids !== ids || origin.peek() !== from) return void fetched.value++;
    const before = more.peek()?.ids === ids && more.peek()?.edits === edits ? more.peek()!.values : {};
    batch(() => {
      if (needed.values.length) more.value = { ids, edits, values: { ...before, ...found } };
      fetched.value++;
    });
  } catch (error) {
    if (shown.peek()?.ids === ids) fault.value = reasonOf(error);
  }
}

function follow(to: readonly Spot[]): void {
  batch(() => {
    trail.value = to;
    terms.value = FEW;
  });
}

/** Opens a cell of a named value, as the first of a new way. */
export function open(name: string, index: readonly number[]): void {
  follow([{ name, index, path: [] }]);
}

/** Opens a cell from afar: the reader is taken to it. */
export function show(name: string, index: readonly number[]): void {
  open(name, index);
  goTo("numbers");
}

/** Takes the reader to a heading. */
export function goTo(id: string): void {
  const heading = document.getElementById(id);
  if (heading) heading.tabIndex = -1;
  heading?.focus({ preventScroll: true });
  heading?.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

/** Opens a number of what is open. */
export function go(spot: Spot): void {
  follow([...way.value, spot]);
}

/** Back to a cell on the way: the one before, if none is given. */
export function back(to = way.value.length - 2): void {
  if (to >= 0) follow(way.value.slice(0, to + 1));
}
