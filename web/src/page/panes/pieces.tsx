// Pieces that panes share: a token and a number in a sentence, names of places, lines of code.

import { computed } from "@preact/signals";
import { visible } from "../marks/colour";
import { glass } from "../marks/theme";
import { around, outputs } from "../source";
import { encoded, gapsIn, given, ids, shown, origin, text, wellFormed } from "../state";
import { GAP } from "../tokens";
import { number, plural, rich, t } from "../words";

/** A token as a small pane in a sentence. */
export function Token({ id, token = origin.value!.about.tokens[id] }: { id: number; token?: string }) {
  const { fill, ink } = glass(token);
  return (
    <b class="glass" style={{ background: fill, color: ink }}>
      {visible(token)}
    </b>
  );
}

/** What the model says: a token, or a label. */
export const Said = ({ id }: { id: number }) => <Token id={id} token={outputs(origin.value!.about)[id]} />;

/** Lines that a field shows at once. */
const MOST_LINES = 8;

/** A field for a text without lone surrogates; `isLine`: line ends become spaces. */
export const Field = ({ label, text, isLine, onText }: { label: string; text: string; isLine?: boolean; onText(text: string): void }) => (
  <textarea rows={Math.min(MOST_LINES, text.split("\n").length)} spellcheck={false} autocomplete="off" aria-label={label} value={text} onInput={({ currentTarget: field }) => {
    const typed = wellFormed(field.value);
    onText((field.value = isLine ? typed.replace(/\n+/g, " ") : typed));
  }} />
);

/** Why there are no numbers, where there is a reason. */
export const Trouble = ({ of }: { of: string }) => of && <p role="alert">{t("The numbers could not be computed: {reason}", { reason: of })}</p>;

/** Two tokens to choose of those that are offered. */
export function Rivals({ offered, pair, onPick }: { offered: readonly number[]; pair: readonly [number, number]; onPick(pair: [number, number]): void }) {
  const select = (which: 0 | 1, label: string) => (
    <select aria-label={label} value={pair[which]} onChange={(event) => {
      const next: [number, number] = [...pair];
      next[which] = Number(event.currentTarget.value);
      onPick(next);
    }}>
      {[...new Set([...offered, pair[which]])].map((each) => <option value={each}>{visible(origin.value!.about.tokens[each])}</option>)}
    </select>
  );
  return <p class="choose">{rich("Compare {one} with {other}.", { one: select(0, t("one token")), other: select(1, t("the other token")) })}</p>;
}

/** Which characters have no token. */
export const never = (unseen: readonly string[]) =>
  unseen.length > 0 && plural(unseen.length, "The model has never seen {which}; it is left out.", "The model has never seen {which}; they are left out.", { which: [...new Set(unseen)].map((each) => `“${each}”`).join(" ") });

/** A number of the page, underlined in the colour of the token it is of. */
export function Live({ value, digits = 2, token }: { value: number; digits?: number; token?: string }) {
  return (
    <span class="live" style={token === undefined ? undefined : { borderColor: glass(token).fill }}>
      {number(value, digits)}
    </span>
  );
}

/** What a place of the stream is called: by the part that was written to it last. */
export function placeName(name: string): string {
  const { stream, contributions } = origin.value!.about;
  return contributionName(contributions[stream.indexOf(name) - 1] ?? "embed");
}

/** What a part is called that writes to the stream. */
export function contributionName(name: string): string {
  if (name === "embed") return t("embedding");
  const [, block, part] = name.split(".");
  const places = { block: Number(block) };
  if (part === "attn") return t("attention {block}", places);
  if (part === "cross") return t("cross-attention {block}", places);
  return part === "mlp" ? t("feed-forward {block}", places) : t("LSTM {block}", places);
}

/** The text that the page reads: without characters that the model has never seen, and without what does not fit. */
export const readText = computed(() => {
  const now = shown.value;
  if (!now || !(now.from.about.task === "gaps" || now.cropped || now.ids !== ids.value || encoded.value.unseen.length)) return text.value;
  const { before, after } = around(now.from.about);
  return now.from.decode(now.ids.slice(before.length, now.ids.length - after.length));
});
/** A text as a string of Python. */
export const pythonic = (given: string): string => JSON.stringify(given).replace(/[\u007f-\uffff]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
const quoting = computed(() => pythonic(readText.value));
/** The sentence as a string of Python. */
export const quoted = (): string => quoting.value;

/** A text for a shell. */
const shell = (given: string): string => (/^[\w./][\w./-]*$/.test(given) ? given : `'${given.replace(/'/g, `'\\''`)}'`);
/** The beginning of a command about the run, and the sentence after an option. */
export const command = (name: string, option = "--text", about = origin.value!.about): string => `${about.program ?? "vitral"} ${name} ${shell(about.run ?? about.name)} ${option} ${shell(readText.value)}`;

/** Whether the sentence that is shown has gaps. */
export const hasGaps = (): boolean => gapsIn(origin.value!.about, shown.value!.ids).length > 0;

/** The line of Python that traces this name. */
export function tracedWhole(name: string): string {
  const { about } = origin.value!;
  const { source, fills } = about;
  if (hasGaps() || fills?.after.length) {
    const [{ before, after }, { from, ids }] = [around(about), shown.value!];
    const typed = readText.value.split(GAP).map((piece) => piece && `*run.tokenizer.encode(${pythonic(piece)})`);
    // A text that was cut into other tokens has no line but that of its ids.
    const all = String([...before, ...from.encode(readText.value).ids, ...after]) !== String(ids) ? ids
      : [...before, ...typed.flatMap((piece, at) => (at ? ["run.tokenizer.mask", piece] : piece)), ...after].filter((each) => each !== "");
    return `run.model.trace(torch.tensor([[${all.join(", ")}]]), ["${name}"]${fills!.ahead ? ", bidirectional=True" : ""})["${name}"]`;
  }
  if (!source) return `run.trace(${quoted()}, ["${name}"])["${name}"]`;
  return `run.model.trace(run.encode(${pythonic((source.opens === null ? "" : "<|answer|>") + readText.value)}), source=run.encode(${pythonic(given.value)}))["${name}"]`;
}
export const traced = (name: string, index: string): string => `${tracedWhole(name)}[${index}]`;

/** The command that explains the sentence: fills its gaps, or names its label. */
export const explained = (): string => (origin.value!.about.labels ? command("generate", "--source") : hasGaps() ? command("fill") : command("inspect"));
