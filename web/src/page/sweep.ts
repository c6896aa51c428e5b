// The sweep: every place of the model patched from a second sentence, or zeroed, one at a time, as vitral.inspection.sweep has it.

import { computed, effect, signal, untracked } from "@preact/signals";
import { difference, editOf } from "./compute/swept";
import { largest, rowOf } from "./rows";
import { About, Edit, Encoded, Place, Source, Swept, Tensor, atPosition } from "./source";
import { edits, fault, shown, sweepFrom, sweepHeads, sweepPair } from "./state";
import { saidBy } from "./wanted";
import { softmax } from "./decoding/filters";

/** Differences of logits nearer to each other than this are equal: nothing can be restored. */
const APART = 1e-3;
/** Requests of a sweep that a server has at once. */
const AT_ONCE = 4;
/** Tokens at the end of a sentence of which one is another in a proposed one. */
const TRIED = 10;

/** The heads of a model, as places. */
export const headsOf = (about: About): Place[] =>
  about.names.filter((name) => name.endsWith(".attn.z")).flatMap((at) => Array.from({ length: about.heads }, (_, head) => ({ at, head })));

/** The rows of a sweep: every head, where that is asked and there are some, else the embedding and what each half-layer adds. */
function placesOf(about: About, byHead: boolean): Place[] {
  const heads = byHead ? headsOf(about) : [];
  return heads.length ? heads : ["embed", ...about.contributions].map((at) => ({ at }));
}

const tokensIn = async (of: Source, text: string): Promise<Encoded> => of.tokensOf?.(text) ?? of.encode(text);

/** What the tokenizer makes of the other sentence, and for which run. */
export const other = signal<{ text: string; name: string; encoded: Encoded } | null>(null);
effect(() => {
  const [text, of] = [sweepFrom.value, shown.value?.from];
  if (!text || !of) return;
  void tokensIn(of, text).then((encoded) => (other.value = { text, name: of.about.name, encoded }));
});

/** What is asked: nothing where there is no sweep, or where the sentences are not equally long. */
const question = computed(() => {
  const [from, now, chosen, byHead] = [sweepFrom.value, shown.value, sweepPair.value, sweepHeads.value];
  if (from === null || !now || now.from.about.task) return null;
  const { ids, from: of } = now;
  const { name, step, vocabulary } = of.about;
  const pair = chosen?.every((id) => id < vocabulary) ? chosen : null;
  const known = other.value;
  if (from && (known?.text !== from || known.name !== name || known.encoded.ids.length !== ids.length || known.encoded.unseen.length)) return null;
  const others = from ? known!.encoded.ids : null;
  const sentence = JSON.stringify([name, step, ids, of.given]);
  return { sentence, key: sentence + JSON.stringify([others, pair, byHead]), of, ids, from, others, pair, places: placesOf(of.about, byHead) };
});

export interface Answer extends Swept {
  /** Of which run and which tokens it is. */
  sentence: string;
  /** The logits after each sentence; of zeros both are this one. */
  own: Tensor["data"];
  theirs: Tensor["data"];
  /** The difference of the two logits after each sentence. */
  before: number;
  after: number;
  /** [places × positions]; NaN where it is not yet known. */
  effects: Float64Array;
  /** Whether the difference is the same after both sentences: nothing can be restored. */
  isSame: boolean;
}

/** The map as far as it is known. */
export const answer = signal<Answer | null>(null);

let [turn, current] = [0, ""];
effect(() => {
  const asked = question.value;
  untracked(() => {
    if ((asked?.key ?? "") === current) return; // what is shown changes with edits; the sweep is of the unchanged model
    current = asked?.key ?? "";
    const own = ++turn;
    const isWanted = () => own === turn;
    if (answer.value?.sentence !== asked?.sentence) answer.value = null; // else the map stays until the next one comes
    if (asked) answered(asked, isWanted).catch((error: Error) => isWanted() && (fault.value = error.message));
  });
});

async function answered({ sentence, of, ids, from, others, pair: chosen, places }: NonNullable<typeof question.value>, isWanted: () => boolean): Promise<void> {
  const last = atPosition("logits", ids.length - 1);
  const own = (await of.trace(ids, [last], []))[last].data;
  const theirs = others ? (await of.trace(others, [last], []))[last].data : own;
  if (!isWanted()) return;
  const [first, second] = largest(own, 2);
  const pair = chosen ?? ([first, [largest(theirs, 1)[0], second].find((id) => id !== first) ?? first] as const);
  const [before, after] = [own, theirs].map((row) => row[pair[0]] - row[pair[1]]);
  const asked = { ids, from, others, pair, places };
  const count = places.length * ids.length;
  answer.value = { ...asked, sentence, own, theirs, before, after, effects: new Float64Array(count).fill(NaN), isSame: others !== null && Math.abs(after - before) < APART };
  if (answer.value.isSame) return;
  const tell = (start: number, differences: readonly number[]) => {
    if (!isWanted()) return;
    const effects = answer.value!.effects.slice();
    differences.forEach((each, place) => (effects[start + place] = (each - before) / (others ? after - before : 1)));
    answer.value = { ...answer.value!, effects };
  };
  if (of.sweep) return of.sweep(asked, tell, isWanted);
  for (let start = 0; start < count && isWanted(); start += AT_ONCE) {
    const cells = Array.from({ length: Math.min(AT_ONCE, count - start) }, (_, cell) => editOf(asked, start + cell));
    tell(start, (await Promise.all(cells.map((edit) => of.trace(ids, [last], [edit])))).map((values) => difference(values[last], pair)));
  }
}

/** The edit of a cell, where it is made now. */
export function madeOf(asked: Swept, cell: number): Edit | undefined {
  const own = JSON.stringify(editOf(asked, cell));
  return edits.value.find((each) => JSON.stringify(each) === own);
}

/** Makes the edit of a cell, or undoes it. */
export function toggleCell(asked: Swept, cell: number): void {
  const made = madeOf(asked, cell);
  edits.value = made ? edits.value.filter((each) => each !== made) : [...edits.value, editOf(asked, cell)];
}

/** The cells as a table, as `Sweep.to_pandas` has them. */
export function asCsv({ places, ids, effects }: Answer, { tokens }: About): string {
  const lines = places.flatMap(({ at, head }, row) => ids.map((id, column) =>
    [head === undefined ? at : `${at}[${head}]`, column, `"${tokens[id].replace(/"/g, '""')}"`, effects[row * ids.length + column]].join()));
  return ["place,position,token,effect", ...lines, ""].join("\n");
}

/**
 * A second sentence as long as this one: one of its last tokens is another that the model expected there. It is the one that
 * changes most what the model expects next; the last one of all, whose change says little, only where no other changes it.
 */
export async function proposal(): Promise<string> {
  const { from, ids, values, compared } = shown.value!;
  const end = ids.length - 1;
  const last = atPosition("logits", end);
  const expected = async (tokens: readonly number[]) => softmax((await from.trace(tokens, [last], []))[last].data);
  const own = await expected(ids);
  const known = compared ?? values;
  const said = saidBy(known, "logits", ids.length, end).ids;
  let [best, most] = [from.decode(ids), -1];
  for (let at = end; at >= Math.max(0, end - TRIED + 1); at--) {
    const likely = at === 0 ? [] : known.logits ? largest(rowOf(known, "logits", at - 1), 2) : [said[at - 1]];
    const tokens = ids.map((id, place) => (place === at ? [...likely, 0, 1].find((each) => each >= 0 && each !== id)! : id));
    const text = from.decode(tokens);
    if (String((await tokensIn(from, text)).ids) !== String(tokens)) continue; // the tokenizer cuts it differently
    const shares = await expected(tokens);
    const moved = at === end ? 0 : own.reduce((sum, each, id) => sum + Math.abs(each - shares[id]), 0);
    if (most < 0 || moved > Math.max(most, APART)) [best, most] = [text, moved];
  }
  return best;
}
