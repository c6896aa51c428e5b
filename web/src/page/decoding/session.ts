// What is going on in the choice: branches that were taken, a text that goes on by itself, beams that grow.

import { Signal, batch, signal } from "@preact/signals";
import { UNFILTERED, ahead, beams, chosen, edits, encoded, held, ids, origin, ownNumber, pause as painted, position, readings, sampling, seed, shown, source, text, writes } from "../state";
import type { Edit, Source } from "../source";
import { Hypothesis, ROOT, grow, tokensOf } from "./beam";
import { uniform } from "./draw";
import { distribution } from "./filters";
import { reasonOf } from "../words";

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
/** Every hypothesis that was ever one of the beams, and those that are. */
export const grown = signal<Hypothesis[]>([]);
export const live = signal<Hypothesis[]>([ROOT]);
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

let [belongsTo, grownOf, besideOf, seen] = ["", "", "", 0];

/**
 * Makes what the address says: so many tokens, beams so long. What was made of another sentence or with other settings is
 * gone; these go on as far only where an address has brought them.
 */
export function settle(...given: unknown[]): void {
  const [now, reader, known] = [JSON.stringify(given), shown.value?.beside?.from.about.name ?? "", readings.value];
  if (now !== belongsTo && seen === known) writes.value = ahead.value = 0;
  if (now !== belongsTo || reader !== besideOf || made.value.length > writes.value) {
    stop();
    const kept = now === belongsTo && reader === besideOf ? writes.value : 0;
    [made.value, others.value] = [made.value.slice(0, kept), others.value.slice(0, kept)];
  }
  if (now + beams.value !== grownOf || grownTo() > ahead.value) {
    stop();
    [grown.value, live.value] = [[], [ROOT]];
  }
  [belongsTo, grownOf, besideOf, seen] = [now, now + beams.value, reader, known];
  if (shown.value?.ids !== ids.value || shown.value.from !== source.value) return; // what is asked for is not here yet
  if (made.value.length < writes.value && !isRunning.value) void goesOn();
  if (grownTo() < ahead.value && live.value.length && !isSearching.value) void looksAhead();
}

/** How many tokens the beams have. */
export const grownTo = (): number => live.value[0]?.length ?? 0;

/** Nothing is written, and no beam has grown. */
export const clear = (): void => batch(() => void (writes.value = ahead.value = 0));

/** What was made stays, and goes on from there when more is asked for. */
export function pause(): void {
  batch(() => {
    [writes.value, ahead.value] = [made.value.length, grownTo()];
    stop();
  });
}

let run = 0;

function stop(): void {
  run++;
  isRunning.value = isSearching.value = false;
  fault.value = "";
}

/** Works as long as nothing stops it; what cannot be computed is no longer asked for. */
async function guarded(is: Signal<boolean>, work: (isWanted: () => boolean) => Promise<void>): Promise<void> {
  const now = run;
  is.value = true;
  try {
    await work(() => now === run);
  } catch (error) {
    if (now === run) fault.value = reasonOf(error);
  }
  if (now !== run) return;
  batch(() => {
    is.value = false;
    [writes.value, ahead.value] = [isRunning.value ? writes.value : made.value.length, isSearching.value ? ahead.value : grownTo()];
  });
}

/** Both readers go on until so many tokens have been made. */
const goesOn = () => guarded(isRunning, async (isWanted) => {
  const second = shown.value?.beside?.from;
  await Promise.all([goOn(isWanted, origin.value!, made, edits.value), ...(second ? [goOn(isWanted, second, others, [])] : [])]);
});

/** One reader writes on from where it stopped. */
async function goOn(isWanted: () => boolean, asked: Source, made: Signal<Made[]>, edits: readonly Edit[]): Promise<void> {
  const [from, start] = [before(), all().length];
  const done = made.value.map(({ id }) => id);
  const numbers = Array.from({ length: Math.max(0, writes.value - done.length) }, (_, turn) =>
    done.length + turn === 0 ? nextNumber() : numberAt(start + done.length + turn),
  );
  const draws = { sampling: sampling.value, numbers, prompt: from.length, edits };
  for await (const { id, logits } of asked.next([...from, ...done], draws)) {
    if (!isWanted()) return;
    if (id === asked.about.source?.closes) return;
    made.value = [...made.value, { id, probability: distribution(logits, draws.sampling, asked.about.specials)[id] }];
    await painted();
    if (!isWanted()) return;
  }
}

/** The beams grow token by token. */
const looksAhead = () => guarded(isSearching, async (isWanted) => {
  const [asked, from] = [origin.value!, before()];
  const { about } = asked;
  while (live.value.length && grownTo() < ahead.value) {
    const logits: ArrayLike<number>[] = [];
    for (const each of live.value) {
      const draws = { sampling: UNFILTERED, numbers: [0], prompt: from.length, edits: edits.value };
      for await (const one of asked.next([...from, ...tokensOf(each)], draws)) logits.push(one.logits);
      if (!isWanted()) return;
    }
    live.value = grow(live.value, logits, beams.value, about.specials);
    grown.value = [...grown.value, ...live.value];
    await painted();
    if (!isWanted()) return;
  }
});
