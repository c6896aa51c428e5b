// What the person has chosen, as signals. Everything that a page shows is computed from these and from its source; the
// address's fragment holds them, so that an address shows the same again.

import { batch, computed, signal } from "@preact/signals";
import { LANGUAGES, language, preferred } from "./words";
import { MOST_SEED } from "./decoding/draw";
import type { Sampling } from "./decoding/filters";
import { readEdits } from "./edits";
import type { Spot } from "./numbers/opening";
import type { Edit, Source, Values } from "./source";
import { isLarge, isPooled, later, wanted } from "./wanted";

export const STEPS = ["scores", "scaled", "masked", "weights"] as const;
export type Step = (typeof STEPS)[number];
export type Theme = "auto" | "light" | "dark";

export const text = signal("");
/** The place of the chosen token; -1 is the last one. */
export const chosen = signal(-1);
export const block = signal(0);
export const head = signal(0);
export const step = signal<Step>("weights");
export const edits = signal<Edit[]>([]);
export const temperature = signal(1);
/** The filters of the choice; null is off. */
export const topK = signal<number | null>(null);
export const topP = signal<number | null>(null);
export const minP = signal<number | null>(null);
export const sampling = computed<Sampling>(() => ({ temperature: temperature.value, top_k: topK.value, top_p: topP.value, min_p: minP.value }));
/** The cells that were opened, each from the one before; empty: query times key at the largest weight of the chosen token. */
export const trail = signal<readonly Spot[]>([]);
/** Whether the reader guesses where the head looks: nothing that tells is shown. */
export const guessing = signal(false);
/** What the page's random numbers begin with. */
export const seed = signal(1);
/** A random number that the person has set instead. */
export const ownNumber = signal<number | null>(null);
export const theme = signal<Theme>("auto");
/** The one figure that is shown, by its name; all if empty. */
export const figure = signal("");
export { language };

/** Where the next answer comes from; the panes read `origin`. */
export const source = signal<Source | null>(null);
/** The place of the run in a server's list. */
export const run = signal(0);
export interface Shown {
  /** The run that the values are of. */
  from: Source;
  ids: number[];
  /** Tokens before these, which do not fit into the context. */
  cropped: number;
  /** The values of the sentence, and those without the edits. */
  values: Values;
  compared: Values | null;
  edits: Edit[];
  /** The token that the values are of, where they are not of all. */
  at: number | null;
}

/** What the panes show. */
export const shown = signal<Shown | null>(null);
export const fault = signal("");
/** The run that is shown; while nothing is, the one that is asked. All that is drawn is of this run. */
export const origin = computed(() => shown.value?.from ?? source.value);

/** Tokens of a text that were chosen one by one: the tokenizer may cut the same text differently. */
export interface Held { text: string; ids: number[] }
export const held = signal<Held | null>(null);

export const encoded = computed(() => {
  const [from, own] = [source.value, held.value];
  if (from && own?.text === text.value && from.decode(own.ids) === own.text) return { ids: own.ids, unseen: [] };
  return from?.encode(text.value) ?? { ids: [], unseen: [] };
});
/** The tokens that fit into the context: the last ones. */
export const ids = computed(() => {
  const most = source.value?.about.context ?? 0;
  return encoded.value.ids.slice(-most);
});
/** Tokens that do not fit. */
export const cropped = computed(() => encoded.value.ids.length - ids.value.length);
/** The place of the chosen token, of those that are shown. */
export const position = computed(() => shown.value?.at ?? among(shown.value?.ids.length ?? 0));

/** The place of the chosen token among so many. */
const among = (count: number): number => (chosen.value < 0 || chosen.value > count - 1 ? count - 1 : chosen.value);

/** The place that is asked for, where values are asked for of one token alone. */
const place = computed(() => {
  const about = source.value?.about;
  return about && isLarge(about, ids.value.length) ? among(ids.value.length) : null;
});

/** The names whose values the page shows. */
export const names = computed(() => {
  const about = source.value?.about;
  const time = ids.value.length;
  return about ? wanted(about, time, place.value ?? 0, place.value === null ? 0 : block.value, isPooled(about, time) ? Math.min(head.value, about.heads - 1) : 0) : [];
});

let asked = 0;
/** Milliseconds after an answer, until what can wait is asked for. */
const LEISURE = 800;

/** Computes the values anew; an answer that has been overtaken is dropped. */
export async function refresh(): Promise<void> {
  const from = source.value;
  const [sentence, wanted, changes, at, left] = [ids.value, names.value, edits.value, place.value, cropped.value];
  const ask = ++asked;
  if (!from || !sentence.length) {
    batch(() => ((shown.value = null), (fault.value = encoded.value.fault ?? "")));
    return;
  }
  try {
    const values = await from.trace(sentence, wanted, changes);
    const compared = changes.length ? await from.trace(sentence, wanted, []) : null;
    if (ask !== asked) return;
    batch(() => ((shown.value = { from, ids: sentence, cropped: left, values, compared, edits: changes, at }), (fault.value = "")));
    await pause(LEISURE);
    const more = later(from.about, sentence.length);
    const [whole, before] = [await gathered(from, ask, more, changes), changes.length ? await gathered(from, ask, more, []) : {}];
    if (ask === asked && more.length) shown.value = { ...shown.value!, values: { ...values, ...whole }, compared: compared && { ...compared, ...before } };
  } catch (error) {
    if (ask !== asked) return;
    batch(() => {
      fault.value = error instanceof Error ? error.message : String(error);
      if (shown.value?.from.about.name !== from.about.name) shown.value = null; // nothing of the run before stays
    });
  }
}

/** Takes over a run: what was chosen in the one before stays as far as this one has it. */
export function take(from: Source): void {
  const { about } = from;
  batch(() => {
    if (source.value && source.value.about.name !== about.name) {
      held.value = null;
      block.value = Math.min(block.value, Math.max(about.layers - 1, 0));
      head.value = Math.min(head.value, Math.max(about.heads - 1, 0));
      edits.value = edits.value.filter(({ at, heads }) => about.names.includes(at) && (heads ?? []).every((each) => each < about.heads));
      trail.value = [];
    }
    source.value = from;
  });
}

const pause = (milliseconds = 0) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Values of the sentence that is shown, name by name, so that a keystroke waits for one of them at most. */
async function gathered(from: Source, ask: number, more: readonly string[], changes: readonly Edit[]): Promise<Values> {
  const found: Values = {};
  for (const name of more) {
    await pause();
    if (ask !== asked) return found;
    Object.assign(found, await from.trace(shown.value!.ids, [name], changes));
  }
  return found;
}

/** Cells on the way to the one that is open, in an address. */
const MOST_OPENED = 64;
const MOST_RUNS = 999;
const DEFAULTS = { n: "0", p: "-1", b: "0", h: "0", s: "weights", t: "1", k: "", q: "", m: "", r: "1", u: "", e: "[]", i: "", l: "", c: "auto", f: "", o: "" };

/** The fragment of the address. */
export function written(): string {
  const now: Record<string, string> = {
    text: text.value,
    n: String(run.value),
    p: String(chosen.value),
    b: String(block.value),
    h: String(head.value),
    s: step.value,
    t: String(temperature.value),
    k: String(topK.value ?? ""),
    q: String(topP.value ?? ""),
    m: String(minP.value ?? ""),
    r: String(seed.value),
    u: String(ownNumber.value ?? ""),
    e: JSON.stringify(edits.value),
    i: ownCut(),
    l: language.value === preferred(source.value?.about.language) ? "" : language.value,
    c: theme.value,
    f: figure.value,
    o: trail.value.map(({ name, index, path }) => [name, index.join("."), path.join(".")].join(":")).join(" "),
  };
  const kept = Object.entries(now).filter(([key, value]) => value !== (DEFAULTS as Record<string, string>)[key]);
  return kept.map(([key, value]) => `${key}=${encodeURIComponent(wellFormed(value))}`).join("&");
}

/** The tokens, where they are not those that the tokenizer makes of the text. */
function ownCut(): string {
  const { value: from } = source;
  if (held.value?.text !== text.value || !from) return "";
  const own = held.value.ids.join(".");
  return own === from.encode(text.value).ids.join(".") ? "" : own;
}

function heldOf(told: string | null): Held | null {
  const ids = told ? told.split(".").map(Number) : [];
  const known = source.value?.about.vocabulary ?? 0;
  if (!ids.length || ids.some((id) => !Number.isInteger(id) || id < 0 || id >= known)) return null;
  return { text: source.value!.decode(ids), ids };
}

/** The text without lone surrogates, which no address can hold. */
const wellFormed = (given: string): string => given.replace(/\p{Surrogate}/gu, "\ufffd");

/** Takes over what a fragment says; what it says wrongly is left as it is. */
export function read(fragment: string): void {
  const found = new URLSearchParams(fragment.replace(/^#/, "").replace(/\+/g, "%2B"));
  const about = source.value?.about;
  const whole = (key: string, least: number, most: number, otherwise: number): number => {
    const value = Number(found.get(key) ?? otherwise);
    return Number.isInteger(value) && value >= least && value <= most ? value : otherwise;
  };
  batch(() => {
    if (found.has("text")) text.value = found.get("text")!;
    run.value = whole("n", 0, MOST_RUNS, 0);
    held.value = heldOf(found.get("i"));
    chosen.value = whole("p", -1, (about?.context ?? 1) - 1, -1);
    block.value = whole("b", 0, Math.max((about?.layers ?? 1) - 1, 0), 0);
    head.value = whole("h", 0, Math.max((about?.heads ?? 1) - 1, 0), 0);
    const named = found.get("s") as Step;
    step.value = STEPS.includes(named) ? named : "weights";
    const heat = Number(found.get("t") ?? 1);
    temperature.value = heat >= 0 && heat <= 10 ? heat : 1;
    const share = (key: string): number | null => {
      const value = Number(found.get(key) || NaN);
      return value >= 0 && value <= 1 ? value : null;
    };
    topK.value = whole("k", 1, about?.vocabulary ?? 1, 0) || null;
    topP.value = share("q") || null;
    minP.value = share("m");
    seed.value = whole("r", 0, MOST_SEED, 1);
    const own = share("u");
    ownNumber.value = own === 1 ? null : own;
    edits.value = editsOf(found.get("e"));
    const code = found.get("l") || preferred(about?.language);
    if (code in LANGUAGES) language.value = code;
    figure.value = (found.get("f") ?? "").replace(/[^a-z-]/g, "");
    trail.value = spotsOf(found.get("o") ?? "");
    const colours = found.get("c") as Theme;
    theme.value = ["light", "dark"].includes(colours) ? colours : "auto";
  });
}

/** Cells as an address writes them, NAME:INDEX:PATH; those that a sentence does not have are never opened. */
function spotsOf(told: string): Spot[] {
  const places = (text: string | undefined) => (text ? text.split(".").map(Number) : []);
  const spots = told.split(" ").filter(Boolean).map((each): Spot => {
    const [name, index, path] = each.split(":");
    return { name, index: places(index), path: places(path) };
  });
  return spots.every(({ index, path }) => [...index, ...path].every((each) => Number.isInteger(each) && each >= 0)) ? spots.slice(0, MOST_OPENED) : [];
}

function editsOf(told: string | null): Edit[] {
  try {
    const known = new Set(source.value?.about.names);
    return (readEdits(JSON.parse(told ?? "[]")) ?? []).filter(({ at }) => known.has(at));
  } catch {
    return [];
  }
}

/** Whether an edit switches something off: zero everywhere. */
export const isZero = (each: Edit): boolean => each.do === "zero" && each.positions === "all";
const zeroes = (each: Edit, at: string, which?: number): boolean => each.at === at && isZero(each) && (which === undefined ? !each.heads : Boolean(each.heads?.includes(which)));

/** Whether a part is switched off. */
export const isOff = (at: string, which?: number, among = edits.value): boolean => among.some((each) => zeroes(each, at, which));

/** Whether a part brings nothing of any token: it is switched off, or all heads of its attention are. */
export function isSilent(part: string, heads: number, among: readonly Edit[]): boolean {
  const z = part.replace(/attn\.out$/, "attn.z");
  const all = Array.from({ length: z === part ? 0 : heads }, (_, which) => which);
  return [part, z].some((at) => among.some((each) => zeroes(each, at))) || (all.length > 0 && all.every((which) => among.some((each) => zeroes(each, z, which))));
}

/** Switches a part off, or on again: a value, or one head of it. */
export function toggle(at: string, which?: number): void {
  // What is still shown may be another run than the one that is asked already.
  const about = source.value?.about;
  if (about && (!about.names.includes(at) || (which ?? 0) >= about.heads)) return;
  if (isOff(at, which)) {
    edits.value = edits.value.flatMap((each) => {
      const others = zeroes(each, at, which) ? (each.heads ?? []).filter((head) => head !== which) : null;
      return others === null ? [each] : others.length ? [{ ...each, heads: others }] : [];
    });
    return;
  }
  edits.value = [...edits.value, { at, ...(which === undefined ? {} : { heads: [which] }), positions: "all", do: "zero" }];
}
