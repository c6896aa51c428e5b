// The tour: stops that lead the reader along the page, and whether the reader has done what a stop waits for. A stop is an
// address that is merged into the present one; what it waits for is told from two addresses, and from what was drawn.

import { computed, effect, signal } from "@preact/signals";
import { branches } from "./decoding/session";
import type { Edit } from "./source";
import { WORKED, block, changes, figure, head, ids, isSilent, isZero, chosen, origin, read, shown, text, tour, written } from "./state";

/** As `vitral.page.tour.Stop`: its sentences are those of the page, or a lecturer's own in one language. */
export interface Stop {
  title: string;
  sentence: string;
  highlight: string;
  address: string;
  wait?: string;
  then?: string;
}

/** Every stop of the page's tour; the page may lack the part of some. */
export const stops = signal<readonly Stop[]>([]);
/** The places in `stops` of those whose part the page has. */
export const present = signal<readonly number[]>([]);
/** The place of the stop that is shown: the one that the address names, or the next that the page has. */
export const here = computed(() => (tour.value ? present.value.find((at) => at >= tour.value!.at) ?? present.value[present.value.length - 1] ?? -1 : -1));
export const stop = computed(() => stops.value[here.value]);
/** Whether the act that the stop waits for has happened; without one there is nothing to wait for. */
export const isDone = computed(() => Boolean(stop.value && (!stop.value.wait || (tour.value!.done && tour.value!.at === here.value))));
/** What the stop still waits for: what would tell the reader, the page keeps to itself. */
export const asking = computed(() => (isDone.value ? undefined : stop.value?.wait));

/** The state in which the stop was entered, and the keys of the address that have differed from it since. */
let arrived = { at: tour.value, address: "", text: "", ids: "", branches: 0 };
const touched = new Set<string>();

const attention = (): string[] => origin.value?.about.contributions.filter((part) => part.endsWith(".attn.out")) ?? [];
const PREVIOUS = "previous";

/** By the address and the edits that the page shows. */
const ACTS: Record<string, (now: URLSearchParams, edits: readonly Edit[]) => boolean> = {
  "text changed": () => touched.has("text"),
  "token guessed": () => text.value !== arrived.text && text.value.startsWith(arrived.text) && String(ids.value) !== arrived.ids,
  "token chosen": () => touched.has("p") && chosen.value >= 0,
  "part off": (_, edits) => edits.some(isZero),
  "attention off": (_, edits) => attention().every((part) => isSilent(part, origin.value!.about.heads, edits)),
  "changes undone": (now, edits) => touched.has("e") && !now.has("e") && !edits.length,
  "head chosen": () => touched.has("b") || touched.has("h"),
  "previous head": () => (touched.has("b") || touched.has("h")) && origin.value!.about.kinds?.[block.value]?.[head.value] === PREVIOUS,
  "worked through": (now) => touched.has("w") && now.get("w") === String(WORKED),
  "cell opened": () => touched.has("o"),
  "temperature changed": () => touched.has("t"),
  "token drawn": () => branches.value.length > arrived.branches,
};

/** Whether the model at hand can do what a stop waits for. */
export function isPossible({ wait }: Stop): boolean {
  if (origin.value?.about.task && ["token guessed", "attention off"].includes(wait ?? "")) return false; // they speak of the next token
  if (wait === "attention off") return attention().length > 0;
  return wait !== "previous head" || Boolean(origin.value?.about.kinds?.some((heads) => heads.includes(PREVIOUS)));
}

effect(() => {
  const [now, address] = [tour.value, written()];
  if (now !== arrived.at) {
    arrived = { at: now, address, text: text.value, ids: String(ids.value), branches: branches.value.length };
    touched.clear();
  }
  for (const key of changes(arrived.address, address)) touched.add(key);
  // Only once the page shows the sentence as it is now.
  if (shown.value?.ids !== ids.value || !stop.value || isDone.value) return;
  if (ACTS[stop.value.wait!](new URLSearchParams(address), shown.value.edits)) tour.value = { at: here.value, done: true };
});

/** Goes to a stop: sets what its address names, and nothing else. */
export function enter(at: number): void {
  const merged = new URLSearchParams(written().replace(/\+/g, "%2B"));
  new URLSearchParams(stops.value[at].address.replace(/\+/g, "%2B")).forEach((value, key) => merged.set(key, value));
  merged.set("g", String(at + 1));
  read(merged.toString().replace(/\+/g, "%20"));
}

/** Where the tour was left last. */
let left = 0;

/** Begins the tour, or goes on where it was left. */
export function begin(): void {
  figure.value = ""; // alone, it has no room for what the stops speak of
  enter(present.value.includes(left) ? left : (present.value[0] ?? stops.value.findIndex(isPossible)));
}

export function leave(): void {
  left = here.value;
  tour.value = null;
}
