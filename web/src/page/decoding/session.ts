// What is going on in the choice: branches that were taken, a text that goes on by itself, beams that grow.

import { Signal, batch, signal } from "@preact/signals";
import { chosen, edits, encoded, held, origin, ownNumber, position, sampling, seed, shown, text } from "../state";
import type { Edit, Source } from "../source";
import { Hypothesis, ROOT, grow, tokensOf } from "./beam";
import { uniform } from "./draw";
import { distribution } from "./filters";

/** A token that was generated, and the probability with which it was drawn. */
export interface Made {
  id: number;
  probability: number;
}

/** The sentences before each branch, to go back to. */
export const branches = signal<{ text: string; chosen: number; held: number[] | null }[]>([]);
export const made = signal<Made[]>([]);
/** What the reader beside has made of the same sentence and the same numbers. */
export const others = signal<Made[]>([]);
export const isRunning = signal(false);
export const wanted = signal(40);
/** Every hypothesis that was ever one of the beams, and those that are. */
export const grown = signal<Hypothesis[]>([]);
export const live = signal<Hypothesis[]>([ROOT]);
export const beams = signal(3);
export const isSearching = signal(false);
export const fault = signal("");

/** The tokens up to the chosen one: what the next token follows. */
export const before = (): number[] => (shown.value?.ids ?? []).slice(0, position.value + 1);
/** As `before`, with those that do not fit into the context. */
const all = (): number[] => [...encoded.value.ids.slice(0, shown.value?.cropped ?? 0), ...before()];

/** The number that draws the token behind so many; the person's own is for the next one. */
export const numberAt = (place: number): number => uniform(seed.value, place);
export const nextNumber = (): number => ownNumber.value ?? numberAt(all().length);

/** The sentence goes on with these tokens, whatever the tokenizer would make of its text. */
export function branch(tokens: readonly number[]): void {
  branches.value = [...branches.value, { text: text.value, chosen: chosen.value, held: held.value }];
  const on = [...all(), ...tokens];
  const to = origin.value!.decode(on);
  batch(() => {
    chosen.value = -1;
    ownNumber.value = null;
    held.value = on;
    text.value = to;
  });
  clear();
}

/** Takes the last branch back. */
export function back(): void {
  const last = branches.value[branches.value.length - 1];
  if (!last) return;
  branches.value = branches.value.slice(0, -1);
  batch(() => {
    held.value = last.held;
    text.value = last.text;
    chosen.value = last.chosen;
  });
  clear();
}

let belongsTo = "";

/** What was generated before another sentence was typed or a setting changed is gone. */
export function keepFor(...given: unknown[]): void {
  const now = JSON.stringify(given);
  if (now !== belongsTo) clear();
  belongsTo = now;
}

export function clear(): void {
  run++;
  made.value = [];
  others.value = [];
  grown.value = [];
  live.value = [ROOT];
  isRunning.value = isSearching.value = false;
  fault.value = "";
}

let run = 0;
const painted = (): Promise<void> => new Promise((done) => setTimeout(done));

async function guarded(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    fault.value = error instanceof Error ? error.message : String(error);
  }
}

/** Goes on until so many tokens have been made, of both readers; it can be stopped, and goes on from where it stopped. */
export async function generate(count: number): Promise<void> {
  const now = ++run;
  const second = shown.value?.beside?.from;
  isRunning.value = true;
  await guarded(async () => {
    await Promise.all([goOn(now, count, origin.value!, made, edits.value), ...(second ? [goOn(now, count, second, others, [])] : [])]);
  });
  if (now === run) isRunning.value = false;
}

/** One reader writes on from where it stopped. */
async function goOn(now: number, count: number, asked: Source, made: Signal<Made[]>, edits: readonly Edit[]): Promise<void> {
  const [from, start] = [before(), all().length];
  const done = made.value.map(({ id }) => id);
  const numbers = Array.from({ length: Math.max(0, count - done.length) }, (_, turn) =>
    done.length + turn === 0 ? nextNumber() : numberAt(start + done.length + turn),
  );
  const draws = { sampling: sampling.value, numbers, prompt: from.length, edits };
  for await (const { id, logits } of asked.next([...from, ...done], draws)) {
    if (now !== run) return;
    made.value = [...made.value, { id, probability: distribution(logits, draws.sampling, asked.about.specials)[id] }];
    await painted();
    if (now !== run) return;
  }
}

export function pause(): void {
  run++;
  isRunning.value = isSearching.value = false;
}

/** The beams grow by one token, or until so many are reached. */
export async function search(length: number): Promise<void> {
  const now = ++run;
  const [asked, from] = [origin.value!, before()];
  isSearching.value = true;
  await guarded(async () => {
    const { about } = asked;
    while (live.value.length && live.value[0].length < length) {
      const logits: ArrayLike<number>[] = [];
      for (const each of live.value) {
        const draws = { sampling: { ...sampling.value, temperature: 1, top_k: null, top_p: null, min_p: null }, numbers: [0], prompt: from.length, edits: edits.value };
        for await (const one of asked.next([...from, ...tokensOf(each)], draws)) logits.push(one.logits);
        if (now !== run) return;
      }
      live.value = grow(live.value, logits, beams.value, about.specials);
      grown.value = [...grown.value, ...live.value];
      await painted();
      if (now !== run) return;
    }
  });
  if (now === run) isSearching.value = false;
}
