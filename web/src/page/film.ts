// The film of the run: which of its weights the page shows, those of the trained model or of a frame, and what each of them
// says of the sentence.

import { batch, computed, effect, signal } from "@preact/signals";
import { mean } from "./compute/readings";
import { About, RATED, READ, Values } from "./source";
import { Shown, fault, frame, origin, pause, shown, source } from "./state";
import { reasonOf } from "./words";

/** What a page says of a frame: what was measured of the trained model is not said of it. */
export const frameOf = (about: About, step: number): About => ({ ...about, name: `${about.name}@${step}`, step, trained: about.step, loss: undefined, kinds: undefined, ablations: undefined });

/** The step of the trained model. */
const trainedStep = (about: About): number => about.trained ?? about.step;
/** The steps that can be chosen, the trained model's among them. */
export const stopsOf = (about: About): number[] => [...about.film!.steps, trainedStep(about)].sort((one, other) => one - other);
/** The frame of a stop; null is the trained model. */
const frameAt = (about: About, step: number): number | null => (step === trainedStep(about) ? null : step);

export const stops = computed(() => (origin.value?.about.film ? stopsOf(origin.value.about) : []));

/** Shows the model as it was after a step. */
export const choose = (step: number): void => void (frame.value = frameAt(origin.value!.about, step));

let changes = 0;
effect(() => {
  const [to, from] = [frame.value, source.value];
  const now = from && frameAt(from.about, from.about.step);
  const own = ++changes;
  if (!from || to === now) return;
  if (to !== null && !from.about.film?.steps.includes(to)) return void (frame.value = now); // an address of another page
  from.at!(to).then(
    (made) => own === changes && (source.value = made),
    (error: unknown) => own === changes && batch(() => ((frame.value = now), (fault.value = reasonOf(error)))),
  );
});

/** What each stop says: after every token the likeliest one and its probability, and how it rated the tokens. */
export const readings = signal<{ of: string; found: Record<number, Values> }>({ of: "", found: {} });
/** Whether somebody sees them. */
export const isWatched = signal(false);

/** What is being read. */
let begun = "";
/** Milliseconds after the last key until the frames read the sentence. */
const LEISURE = 300;

effect(() => {
  const now = shown.value;
  const of = now ? JSON.stringify([now.from.about.run, trainedStep(now.from.about), now.ids, now.from.given, now.edits]) : "";
  if (of !== readings.peek().of) [readings.value, begun] = [{ of, found: {} }, ""];
  if (now?.from.about.film && isWatched.value) void readAll(now, of);
});

/** One stop after another, so that a keystroke waits for one of them at most. */
async function readAll({ from, ids, edits }: Shown, of: string): Promise<void> {
  if (begun === of) return;
  begun = of;
  await pause(LEISURE);
  for (const step of stopsOf(from.about)) {
    await pause();
    if (begun !== of) return;
    // A frame that fails says why when it is chosen.
    const values = await from.at!(frameAt(from.about, step)).then((one) => (one.reads?.(from.given, false) ?? one).trace(ids, [`${READ}logits`, RATED], edits)).catch(() => null);
    if (values && begun === of) readings.value = { of, found: { ...readings.peek().found, [step]: values } };
  }
}

/** What a stop says after the token at a position, and its mean loss on the sentence; null while that is computed. */
export function reading(step: number, position: number): { id: number; share: number; loss: number } | null {
  const values = readings.value.found[step];
  if (!values) return null;
  const [{ data: said }, { data: rated }] = [values[`${READ}logits`], values[RATED]];
  const losses = rated.filter((_, cell) => cell > 1 && cell % 2 === 0);
  return { id: said[2 * position], share: said[2 * position + 1], loss: mean(losses) };
}
