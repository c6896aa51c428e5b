// Pieces that panes share: a token and a number in a sentence, names of places, lines of code.

import { computed } from "@preact/signals";
import { visible } from "../marks/colour";
import { glass } from "../marks/theme";
import { cropped, encoded, ids, shown, source, text } from "../state";
import { number, t } from "../words";

/** A token as a small pane in a sentence. */
export function Token({ id, token = source.value!.about.tokens[id] }: { id: number; token?: string }) {
  const { fill, ink } = glass(token);
  return (
    <b class="glass" style={{ background: fill, color: ink }}>
      {visible(token)}
    </b>
  );
}

/** A number of the page, underlined in the colour of the token it is of. */
export function Live({ value, digits = 2, token }: { value: number; digits?: number; token?: string }) {
  return (
    <span class="live" style={token === undefined ? undefined : { borderColor: glass(token).fill }}>
      {number(value, digits)}
    </span>
  );
}

/** What a place of the stream is called. */
export function placeName(name: string): string {
  if (name === "embed") return t("embedding");
  const [, block, point] = name.split(".");
  return point === "resid_mid" ? t("block {block} · attention", { block: Number(block) }) : t("block {block} · feed-forward", { block: Number(block) });
}

/** What a part is called that writes to the stream. */
export function contributionName(name: string): string {
  if (name === "embed") return t("embedding");
  const [, block, part] = name.split(".");
  const places = { block: Number(block) };
  if (part === "attn") return t("attention {block}", places);
  return part === "mlp" ? t("feed-forward {block}", places) : t("LSTM {block}", places);
}

/** The text that the page reads: without characters that the model has never seen, and without what does not fit. */
const readText = computed(() => (cropped.value || encoded.value.unseen.length ? source.value!.decode(ids.value) : text.value));
const quoting = computed(() => JSON.stringify(readText.value).replace(/[\u007f-\uffff]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`));
/** The sentence as a string of Python. */
export const quoted = (): string => quoting.value;

/** A text for a shell. */
const shell = (given: string): string => `'${given.replace(/'/g, `'\\''`)}'`;
/** The beginning of a command about the run, and the sentence after an option. */
export const command = (name: string, option = "--text"): string => `vitral ${name} ${shell(source.value!.about.name)} ${option} ${shell(readText.value)}`;

/** The line of Python that traces this name. */
export const traced = (name: string, index: string): string => `run.trace(${quoted()}, ["${name}"])["${name}"][${index}]`;

/** The command that explains the sentence. */
export const explained = (): string => command("inspect");

/** Whether parts are switched off, so that there is something to compare with. */
export const hasBefore = (): boolean => Boolean(shown.value?.compared);
