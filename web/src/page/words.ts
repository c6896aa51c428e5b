// The page's sentences. `make web` collects the calls here, so a sentence is written out; in the built script its number stands
// for it, and the page's data have it in every language.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

type Places = Record<string, string | number>;

/** Codes and own names of the page's languages. */
export const LANGUAGES: Record<string, string> = { en: "English", pt: "português" };
const COMMA = ["pt"];

/** A sentence as it is written, or, in the built script, its number: 1 is the first of all. */
export type Sentence = string | number;
/** All sentences in each language. */
export type Words = Record<string, readonly string[]>;

let catalogues: Words = {};
export const language = signal("en");

/** The language that a reader gets: the page's own, where somebody chose one, else the browser's. */
export const preferred = (own = "en"): string =>
  own !== "en" || typeof navigator === "undefined" ? own : ((navigator.languages ?? []).map((each) => each.slice(0, 2)).find((each) => each in LANGUAGES) ?? own);

/** The sentences that the page carries, by language. */
export function learn(words: Words): void {
  catalogues = words;
}

/** A sentence in the current language; what is in no catalogue stays as it is. */
function told(sentence: Sentence): string {
  const place = typeof sentence === "number" ? sentence - 1 : (catalogues.en ?? []).indexOf(sentence);
  return (catalogues[language.value] ?? catalogues.en)?.[place] ?? String(sentence);
}

/**
 * A number as the current language writes it: digits after the separator, a true minus. Where rounding would leave
 * zero of a number that is none, two significant digits.
 */
export function number(value: number, digits = 2): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const fixed = size.toFixed(digits);
  const [whole, rest] = (size && !Number(fixed) ? size.toPrecision(2) : fixed).replace("-", "−").split(".");
  const [between, mark] = COMMA.includes(language.value) ? [".", ","] : [",", "."];
  return (value < 0 ? "−" : "") + whole.replace(/\B(?=(\d{3})+$)/g, between) + (rest ? mark + rest : "");
}

const shown = (value: string | number): string =>
  typeof value === "string" ? value : number(value, Number.isInteger(value) ? 0 : 2);

/** A place in an order, as in "16th". */
export function ordinal(place: number): string {
  if (language.value === "pt") return `${place}º`;
  const ending = ["th", "st", "nd", "rd"][Math.floor(place / 10) % 10 === 1 ? 0 : place % 10] ?? "th";
  return number(place, 0) + ending;
}

/** The sentence in the current language, with values in its places. */
export const t = (sentence: Sentence, places: Places = {}): string =>
  told(sentence).replace(/\{(\w+)\}/g, (whole, name: string) => (name in places ? shown(places[name]) : whole));

/** One of two sentences, for one and for several. */
export const plural = (count: number, one: Sentence, several: Sentence, places: Places = {}): string =>
  t(count === 1 ? one : several, { n: count, ...places });

/** As `t`, with parts of the page in the places. */
export const rich = (sentence: Sentence, places: Record<string, ComponentChildren>): ComponentChildren[] =>
  told(sentence)
    .split(/(\{\w+\})/)
    .map((piece) => (/^\{\w+\}$/.test(piece) ? places[piece.slice(1, -1)] : piece));

/** What an error says. */
export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Marks a sentence of a table; `t` translates it where it is shown. */
export const N = (sentence: string): Sentence => sentence;

/** Whether a text of the data is one of the sentences. */
export const isSentence = (text: string): boolean => catalogues.en?.includes(text) ?? false;
