// One token's attention in one head, number by number: plain data of the named values, for the section that works it through.

import { Numbers } from "./marks/plain";
import { largest, row, rowOf } from "./rows";
import { About, Edit, Values, atPosition, ofHead } from "./source";
import { headOf, servedBy } from "./wanted";

/** Steps in their order: where an edit sets one, its numbers do not follow from those before. */
const STEPS = ["q_pre", "q", "k_pre", "k", "v", "scores", "scaled", "masked", "weights", "z", "out"];

/** What one token answers. */
export interface Answer { place: number; key: Numbers; value: Numbers; score: number; scaled: number; masked: number; weight: number }

export interface Work {
  base: string;
  head: number;
  /** The head of keys and values that this head reads, and all heads that read it. */
  served: number;
  sharing: number[];
  at: number;
  /** What the projection reads, and its name. */
  input: { name: string; numbers: Numbers };
  /** The query before its rotation, if positions rotate. */
  unturned: Numbers | null;
  query: Numbers;
  /** Of every token that the mask allows, in the order of the sentence. */
  answers: Answer[];
  /** Tokens that it hides. */
  hidden: { later: number[]; earlier: number[] };
  z: Numbers;
  /** Steps that an edit sets in this row. */
  changed: string[];
}

/** The work of a head for a token; null where the model has no such attention, or its numbers are not here. */
export function workOf(about: About, values: Values, edits: readonly Edit[], layer: number, head: number, at: number, count: number): Work | null {
  const base = `blocks.${layer}.attn`;
  const served = servedBy(about, head);
  const vector = (step: string, which: number, place = at): Numbers | null => {
    const name = `${base}.${step}`;
    const [whole, alone, own] = [values[name], values[atPosition(name, place)], values[ofHead(name, which)]];
    return whole ? row(whole, 0, which, place) : alone ? row(alone, 0, which, 0) : own ? row(own, 0, 0, place) : null;
  };
  const map = (step: string) => {
    const found = headOf(values, `${base}.${step}`, head);
    return found && row(found[0], 0, found[1], at);
  };
  const [query, z, scores, scaled, masked, weights] = [vector("q", head), vector("z", head), map("scores"), map("scaled"), map("masked"), map("weights")];
  const input = [`${base}_norm`, `blocks.${layer}.resid_pre`].find((name) => values[name] ?? values[atPosition(name, at)]);
  if (!query || !z || !scores || !scaled || !masked || !weights || !input || !vector("k", served) || !vector("v", served)) return null;
  const places = Array.from({ length: count }, (_, place) => place);
  const hides = places.filter((place) => masked[place] === -Infinity);
  const isChanged = (step: string) => edits.some(({ at: name, heads, positions }) => {
    const ofKeys = /^[kv]/.test(step);
    return name === `${base}.${step}` && (ofKeys || positions === "all" || positions.includes(at)) && (!heads || heads.includes(ofKeys ? served : head));
  });
  return {
    base, head, served, at, query, z,
    sharing: Array.from({ length: about.heads }, (_, each) => each).filter((each) => servedBy(about, each) === served),
    input: { name: input, numbers: rowOf(values, input, at) },
    unturned: vector("q_pre", head),
    answers: places.filter((place) => !hides.includes(place)).map((place) => ({
      place, key: vector("k", served, place)!, value: vector("v", served, place)!, score: scores[place], scaled: scaled[place], masked: masked[place], weight: weights[place],
    })),
    hidden: { later: hides.filter((place) => place > at), earlier: hides.filter((place) => place <= at) },
    changed: STEPS.filter(isChanged),
  };
}

/** The answers by their weights, the largest first. */
export const byWeight = (answers: readonly Answer[]): Answer[] => [...answers].sort((one, other) => (other.weight || 0) - (one.weight || 0) || one.place - other.place);

/** The compared one and the heaviest, in the order of the sentence, and the others: never one alone. */
export function folded(answers: readonly Answer[], compared: Answer, most: number): { shown: Answer[]; rest: Answer[] } {
  const first = [compared, ...byWeight(answers).filter((each) => each !== compared)].slice(0, answers.length === most + 1 ? most + 1 : most);
  return { shown: answers.filter((each) => first.includes(each)), rest: answers.filter((each) => !first.includes(each)) };
}

/** The weights of some answers together. */
export const together = (answers: readonly Answer[]): number => answers.reduce((sum, { weight }) => sum + weight, 0);

/** Which numbers of a query rotary positions turn together. */
export function pairsOf({ model }: About, width: number): [number, number][] {
  const { fraction = 1, pairing = "halves" } = (typeof model.positions === "object" ? model.positions : {}) as { fraction?: number; pairing?: string };
  const half = Math.floor((width * fraction) / 2);
  return Array.from({ length: half }, (_, pair) => (pairing === "halves" ? [pair, pair + half] : [2 * pair, 2 * pair + 1]));
}

/** What a model multiplies its scores by; `factor` is that of this row, from the scores themselves. */
export function scaleOf({ model }: About, answers: readonly Answer[]): { kind: unknown; factor: number } {
  const [most] = largest(answers.map(({ score }) => Math.abs(score)), 1);
  return { kind: (model.attention as { scale?: unknown } | undefined)?.scale ?? "sqrt", factor: answers[most].scaled / answers[most].score };
}

/** Whether positions add a number to the scaled scores. */
export const biased = ({ model }: About): boolean => model.positions === "alibi" || model.positions === "relative";
