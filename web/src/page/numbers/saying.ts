// What a cell is, in words: its rule, the tokens it is about, the lines that print the same number.

import { visible } from "../marks/colour";
import { command, hasGaps, placeName, tracedWhole } from "../panes/pieces";
import { shown, origin } from "../state";
import { offset, outputs } from "../source";
import { N, Sentence, t } from "../words";
import { NORM, streamOf } from "./opening";

const NORMED = N("norm = (x − mean) / √(variance + ε), times a gain, plus a shift");
/** How each step of a block is computed, by the last part of its name. */
const RULES: Record<string, Sentence> = {
  embed: N("embedding = the token's row of the table, plus that of its position where the model adds one"),
  resid_pre: N("residual stream before the block"),
  attn_norm: NORMED,
  "attn.q_pre": N("query before its rotation = Σ x × W_Q + b"),
  "attn.k_pre": N("key before its rotation = Σ x × W_K + b"),
  "attn.q": N("query = Σ x × W_Q + b"),
  "attn.k": N("key = Σ x × W_K + b"),
  "attn.v": N("value = Σ x × W_V + b"),
  "attn.scores": N("score = q · k, the sum of their products"),
  "attn.scaled": N("scaled = score × scale"),
  "attn.masked": N("masked = scaled where the mask allows a look, else −∞"),
  "attn.weights": N("weight = exp(masked) / Σ exp(masked), the softmax of its row"),
  "attn.z": N("z = Σ weight × value, the weighted sum"),
  "attn.out": N("output of attention = Σ z × W_O + b"),
  attn_sum: N("residual sum = stream + output of attention"),
  recurrence_norm: NORMED,
  "recurrence.out": N("hidden state of the LSTM, whose steps have no names"),
  recurrence_sum: N("residual sum = stream + output of the LSTM"),
  resid_mid: N("residual stream after attention"),
  resid_cross: N("residual stream after cross-attention"),
  mlp_norm: NORMED,
  "mlp.gate": N("gate = Σ x × W + b"),
  "mlp.pre": N("first projection = Σ x × W + b"),
  "mlp.hidden": N("hidden layer = activation function of the first projection"),
  "mlp.out": N("output of the feed-forward = Σ hidden × W + b"),
  mlp_sum: N("residual sum = stream + output of the feed-forward"),
  resid_post: N("residual stream after the block"),
  final_norm: N("final norm = (x − mean) / √(variance + ε), times a gain, plus a shift"),
  pooled: N("mean of the final states of all tokens"),
  logits: N("logit = Σ x × W of the head, the score of a token"),
};

/** The stream that a name is read off by the lens, if it is one of the lens. */
const readOff = (name: string): string => origin.value!.about.names.find((each) => each === streamOf(name)) ?? "";
const stepOf = (name: string): string => (readOff(name) ? (name.startsWith(NORM) ? "final_norm" : "logits") : name.replace(/^(encoder\.)?(blocks\.\d+\.)?/, "").replace(/^cross(?=[._])/, "attn"));
/** Whether a value is of the encoder, or of what cross-attention reads of it. */
const isOfSource = (name: string): boolean => /^encoder\.|\.cross\.[kv]$/.test(name);
/** Where positions rotate queries and keys, these are not what the projection made. */
const ROTATED: Record<string, Sentence> = {
  "attn.q": N("query = rotate(query before its rotation): each pair (a, b) becomes (a·cos − b·sin, a·sin + b·cos)"),
  "attn.k": N("key = rotate(key before its rotation): each pair (a, b) becomes (a·cos − b·sin, a·sin + b·cos)"),
};
const RECTIFIED = N("norm = x / √(mean of x² + ε), times a gain");

/** The rule of a named value; empty for a parameter. */
export function ruleOf(name: string): string {
  const step = stepOf(name);
  const isNorm = step.endsWith("norm");
  const about = origin.value?.about;
  const turned = step in ROTATED && about?.names.includes(`${name}_pre`);
  const rule = isNorm && about?.model.norm_type === "rmsnorm" ? RECTIFIED : turned ? ROTATED[step] : RULES[step];
  return rule ? t(rule) : "";
}

const MAPS = ["scores", "scaled", "masked", "weights"];
/** Whether a value is a map of an attention head: tokens by tokens. */
export const isMap = (name: string): boolean => MAPS.some((each) => name.endsWith(`.attn.${each}`) || name.endsWith(`.cross.${each}`));

/** The places of the sentence that a cell is of. */
export function positionsOf(name: string, index: readonly number[]): number[] {
  const ids = shown.value?.ids ?? [];
  if (name === "token_embedding.weight") return ids.flatMap((id, place) => (id === index[0] ? [place] : []));
  if (name === "positions.weight") return [index[0]];
  if (!isActivation(name) || isOfSource(name)) return [];
  if (origin.value!.about.labels && /^(pooled|logits)$/.test(name)) return [];
  if (name.includes(".cross.") && isMap(name)) return [index[2]];
  return isMap(name) ? [index[2], index[3]] : [index[index.length - 2]];
}

const isActivation = (name: string): boolean => stepOf(name) in RULES;

/** A cell as one writes it in Python: attn.q[0, 2, 5, 3]. */
export function cellName(name: string, index: readonly number[], block?: string): string {
  const short = block && name.startsWith(block) ? name.slice(block.length) : name;
  const token = name === "token_embedding.weight" ? ` ${visible(origin.value!.about.tokens[index[0]])}` : "";
  return `${short}[${index.join(", ")}]${token}`;
}

export const blockOf = (name: string): string => /^(encoder\.)?blocks\.\d+\./.exec(name)?.[0] ?? "";

/** What a cell is about, as a sentence. */
export function about(name: string, index: readonly number[]): string {
  const { ids, from } = shown.value!;
  const { about: run } = from;
  const { tokens } = run;
  const quoted = (of: readonly number[], place: number) => `“${visible(tokens[of[place]])}”`;
  const token = (place: number) => quoted(isOfSource(name) ? from.given! : ids, place);
  const block = Number(/^(?:encoder\.)?blocks\.(\d+)\./.exec(name)?.[1] ?? 0);
  if (!isActivation(name)) return t("A parameter: training made it, no sum.");
  if (isMap(name)) return t("Block {block}, head {head}: {token} looks at {source}.", { block, head: index[1], token: token(index[2]), source: name.includes(".cross.") ? quoted(from.given!, index[3]) : token(index[3]) });
  if (index.length === 4) return t("Block {block}, head {head}: {token}, number {number}.", { block, head: index[1], token: token(index[2]), number: index[3] });
  const said = outputs(run);
  const isAt = offset(run) === 0 || said !== tokens;
  if (readOff(name)) return t(name.startsWith(NORM) ? "The stream after {place}, normed for the head: {token}, number {number}." : isAt ? "Read off after {place}: how much {next} is said at {token}." : "Read off after {place}: how much {next} is said to come after {token}.", {
    place: placeName(readOff(name)), next: `“${visible(said[index[2]] ?? "")}”`, token: token(index[1]), number: index[2],
  });
  if (said !== tokens && name === "logits") return t("How much the label {next} is said to fit.", { next: `“${said[index[1]]}”` });
  if (said !== tokens && name === "pooled") return t("Number {number} of what the head reads.", { number: index[1] });
  if (name === "logits") return t(isAt ? "How much {next} is said to stand at {token}." : "How much {next} is said to come after {token}.", { next: `“${visible(tokens[index[2]] ?? String(index[2]))}”`, token: token(index[1]) });
  if (/^(encoder\.)?(embed|final_norm)$/.test(name)) return t("{token}, number {number} of its vector.", { token: token(index[1]), number: index[2] });
  return t("Block {block}: {token}, number {number} of its vector.", { block, token: token(index[1]), number: index[2] });
}

/** The line of Python that gives the same number. */
export function pythonOf(name: string, index: readonly number[]): string {
  const place = index.join(", ");
  if (readOff(name)) {
    const normed = `run.model.final_norm(${tracedWhole(readOff(name))}.clone())`;
    return `${name.startsWith(NORM) ? normed : `run.model.unembed(${normed})`}[${place}]`;
  }
  return isActivation(name) ? `${tracedWhole(name)}[${place}]` : `run.model.state_dict()["${name}"][${place}]`;
}

/** The command that prints the same arithmetic; empty where there is none. */
export function commandOf(name: string, index: readonly number[]): string {
  const { source, labels } = origin.value!.about;
  if (source || labels || hasGaps() || !isActivation(name) || readOff(name) || stepOf(name).startsWith("recurrence")) return "";
  const start = command("explain");
  const layer = /^blocks\.(\d+)\./.exec(name)?.[1];
  if (layer === undefined) return name === "embed" ? `${start} --block --query ${index[1]} --column ${index[2]}` : `${start} --ending --query ${index[1]} --column ${index[2]}`;
  if (isMap(name)) return `${start} --layer ${layer} --head ${index[1]} --query ${index[2]} --key ${index[3]}`;
  if (index.length === 4) return `${start} --layer ${layer} --head ${index[1]} --query ${index[2]} --column ${index[3]}`;
  return `${start} --layer ${layer} --block --query ${index[1]} --column ${index[2]}`;
}
