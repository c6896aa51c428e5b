// What the page asks its source for: every value of a sentence where these are few; where they are many, what the panes
// show. Numbers that nobody has asked for yet are not there, so panes read them with these functions.

import { Cells, readOff, surprise, Surprise } from "./compute/readings";
import { About, BROUGHT, LENS, MEAN, POOLED, RATED, READ, Tensor, Values, atPosition, ofHead, outputs } from "./source";

/** The logits of the lens, and all other numbers of a sentence, up to which everything is asked for. */
const [MOST_READ, MOST_NUMBERS] = [2 ** 20, 2 ** 22];
const MOST_PARAMETERS = 2e7;
const STEPS = ["scores", "scaled", "masked", "weights"];
/** Numbers of all heads' weights up to which they are asked for whole, whatever they are needed for. */
const [MOST_WEIGHTS, MOST_LINKED] = [2 ** 22, 128];

const lensOf = (about: About, time: number): number => (about.stream.length + about.contributions.length) * time * outputs(about).length;
/** About how many numbers all named values have: four maps of each head, and fourteen vectors of each token. */
const numbersOf = (about: About, time: number): number => about.layers * time * (4 * about.heads * time + 14 * about.d_model);

/** Whether the arithmetic of the model is read only when a cell is opened: in a large model that takes seconds. */
export const isSlow = (about: About): boolean => about.parameters > MOST_PARAMETERS;
/** Whether the lens reads one position; the others come when nobody types. */
export const isNarrow = (about: About, time: number): boolean => lensOf(about, time) > MOST_READ;
/** Whether the page asks for what it shows only, so that another position or block is another question. */
export const isLarge = (about: About, time: number): boolean => isNarrow(about, time) || numbersOf(about, time) > MOST_NUMBERS;

/** Whether all maps but the chosen head's come small from the server. */
export const isPooled = (about: About, time: number): boolean =>
  Boolean(about.served) && time > MOST_LINKED && about.layers * about.heads * time * time > MOST_WEIGHTS;

/** The names that the panes show, with this token, block and head chosen. */
export function wanted(about: About, time: number, at: number, block: number, head: number): string[] {
  const read = [...about.stream, ...about.contributions].map((name) => LENS + name);
  const own = `blocks.${block}.attn.`;
  const brought = about.served ? about.names.filter((name) => (isLarge(about, time) ? [`${own}v`, `${own}z`].includes(name) : /\.attn\.[vz]$/.test(name))).map((name) => BROUGHT + name) : [];
  const all = [...about.names, ...(about.source?.names ?? [])];
  if (!isLarge(about, time)) return [...all, ...read, ...brought];
  const steps = about.names.filter((name) => STEPS.some((step) => name === own + step));
  const weights = about.names.filter((name) => name.endsWith(".attn.weights"));
  const maps = isPooled(about, time) ? [...weights.flatMap((name) => [POOLED + name, atPosition(MEAN + name, at)]), ...steps.map((name) => ofHead(name, head))] : [...new Set([...weights, ...steps])];
  return [
    ...brought,
    ...all.filter((name) => /\.cross\.weights$|^encoder.*\.weights$/.test(name)),
    ...worked(about, own, at, isPooled(about, time) ? servedBy(about, head) : null),
    ...about.stream,
    ...about.contributions.map((name) => atPosition(name, at)),
    ...maps,
    ...(isNarrow(about, time) ? read.map((name) => atPosition(name, at)) : read),
    ...(about.task ? ["logits"] : [atPosition("logits", at), `${READ}logits`, RATED]),
  ];
}

/** What is asked of a reader beside: its logits, of a large sentence those of one token, and how it rates the others. */
export const rating = (about: About, time: number, at: number): string[] => (isLarge(about, time) ? [atPosition("logits", at), RATED] : ["logits"]);

/** What the worked attention of a token needs besides maps: its vectors, and all keys and values, or those of one head. */
function worked({ names }: About, own: string, at: number, served: number | null): string[] {
  return names.filter((name) => name.startsWith(own.slice(0, -1))).flatMap((name) => {
    const step = name.slice(own.length - 1);
    if ([".q", ".q_pre", "_norm"].includes(step) || (step === ".z" && served !== null)) return [atPosition(name, at)];
    return [".k", ".v", ".z"].includes(step) ? [served === null ? name : ofHead(name, served)] : [];
  });
}

/** The head of keys and values that a head reads. */
export const servedBy = ({ heads, model }: About, head: number): number => Math.floor((head * Number(model.num_kv_heads ?? heads)) / heads);

/** The names that are asked for when nobody types: what the lens reads at the other positions; each token hidden, where gaps are filled. */
export const later = (about: About, time: number): string[] => [
  ...(isNarrow(about, time) ? about.stream.map((name) => READ + name) : []),
  ...(about.task === "gaps" ? [RATED] : []),
];

/** The map of a head and its place in it, whole; null where it is not here. */
export function headOf(values: Values, name: string, head: number): [Tensor, number] | null {
  const alone = values[ofHead(name, head)];
  return values[name] ? [values[name], head] : alone ? [alone, 0] : null;
}

/** What was read off, for the panes that show the same. */
const known = new WeakMap<Tensor, ReturnType<typeof readOff>>();
function saidOf(logits: Tensor): ReturnType<typeof readOff> {
  if (!known.has(logits)) known.set(logits, readOff(logits));
  return known.get(logits)!;
}

/** At each position the most probable token of a stream's logits, or of `logits`; −1 where nobody has asked. */
export function saidBy(values: Values, name: string, time: number, position: number): { ids: Int32Array; shares: Float64Array } {
  const logits = name === "logits" ? name : LENS + name;
  if (values[logits]) return saidOf(values[logits]);
  const [ids, shares] = [new Int32Array(time).fill(-1), new Float64Array(time).fill(NaN)];
  const pairs: Cells | undefined = values[READ + name]?.data;
  for (let place = 0; pairs && place < time; place++) [ids[place], shares[place]] = [pairs[2 * place], pairs[2 * place + 1]];
  const alone = values[atPosition(logits, position)];
  if (alone) {
    const here = saidOf(alone);
    [ids[position], shares[position]] = [here.ids[0], here.shares[0]];
  }
  return { ids, shares };
}

/** How the model rated each token. */
export function ratings(values: Values, ids: readonly number[]): Surprise {
  if (!values[RATED]) return surprise(values.logits, ids);
  const { data } = values[RATED];
  return { losses: Float64Array.from(ids, (_, place) => data[2 * place]), ranks: Int32Array.from(ids, (_, place) => data[2 * place + 1]) };
}
