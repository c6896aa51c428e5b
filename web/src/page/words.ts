// The page's sentences. The English sentence is the key; `make web` collects the calls here, so a sentence is written out.

import { signal } from "./signals";
import type { ComponentChildren } from "preact";

type Places = Record<string, string | number>;

/** Codes and own names of the page's languages. */
export const LANGUAGES: Record<string, string> = { en: "English", pt: "português" };
const COMMA = ["pt"];

let catalogues: Record<string, Record<string, string>> = {};
export const language = signal("en");

/** The translations that the page carries, by language. */
export function learn(words: Record<string, Record<string, string>>): void {
  catalogues = words;
}

const told = (sentence: string): string => catalogues[language.value]?.[sentence] ?? sentence;

/** A number as the current language writes it: digits after the separator, a true minus. */
export function number(value: number, digits = 2): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const [whole, rest] = Math.abs(value).toFixed(digits).split(".");
  const [between, mark] = COMMA.includes(language.value) ? [".", ","] : [",", "."];
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, between);
  return (value < 0 && Number((whole + (rest ?? "")).replace(/0/g, "") || 0) ? "−" : "") + grouped + (rest ? mark + rest : "");
}

const shown = (value: string | number): string =>
  typeof value === "string" ? value : number(value, Number.isInteger(value) ? 0 : 2);

/** The sentence in the current language, with values in its places. */
export const t = (sentence: string, places: Places = {}): string =>
  told(sentence).replace(/\{(\w+)\}/g, (whole, name: string) => (name in places ? shown(places[name]) : whole));

/** One of two sentences, for one and for several. */
export const plural = (count: number, one: string, several: string, places: Places = {}): string =>
  t(count === 1 ? one : several, { n: count, ...places });

/** As `t`, with parts of the page in the places. */
export const rich = (sentence: string, places: Record<string, ComponentChildren>): ComponentChildren[] =>
  told(sentence)
    .split(/(\{\w+\})/)
    .map((piece) => (/^\{\w+\}$/.test(piece) ? places[piece.slice(1, -1)] : piece));

/** Marks a sentence of a table; `t` translates it where it is shown. */
export const N = (sentence: string): string => sentence;
