// Colour says who: every token has a glass of its own. Amount says how much, lead says minus.
//
// Vowels are warm, consonants cool, so a word looks like itself; a longer piece takes a glass by its stem, so " walk", "walk" and
// "Walk" share one. Whitespace is clear glass. The fourteen commonest letters were searched under three kinds of colour-blindness;
// a letter is always printed as well.

export type Rgb = readonly [number, number, number];
export type Theme = "light" | "dark";

/** The colours of a page that belong to no token. */
export interface Inks {
  ground: Rgb;
  ink: Rgb;
  soft: Rgb;
  minus: Rgb;
  hair: Rgb;
  leading: Rgb;
  /** Glass without colour: whitespace. */
  clear: Rgb;
}

export const rgb = (hex: string): Rgb => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)) as unknown as Rgb;
export const css = (colour: Rgb): string => "#" + colour.map((each) => Math.round(each).toString(16).padStart(2, "0")).join("");

export const INKS: Record<Theme, Inks> = {
  light: {
    ground: rgb("#fbfaf6"), ink: rgb("#1c1d21"), soft: rgb("#5d5f66"), minus: rgb("#62666f"), hair: rgb("#dcd9cf"),
    leading: rgb("#2d2f35"), clear: rgb("#8f8f8c"),
  },
  dark: {
    ground: rgb("#121317"), ink: rgb("#ece9e1"), soft: rgb("#a4a39d"), minus: rgb("#8d9199"), hair: rgb("#2c2e35"),
    leading: rgb("#c9c6bd"), clear: rgb("#9c9c99"),
  },
};

const LETTERS: Record<string, string> = {
  a: "#940015", e: "#f5c847", i: "#d76f04", o: "#b3b454", u: "#ca435f", y: "#e793b8",
  t: "#3d5bc6", n: "#11919e", s: "#206f33", h: "#71bdf4", r: "#6239a0", l: "#8fe3ba", d: "#9887e8", v: "#9f268d",
  b: "#8f52bf", c: "#2f86c9", f: "#4aa66a", g: "#57769e", j: "#7a6fb0", k: "#0b545c", m: "#6a86e0", p: "#2c4a8f", q: "#4c3f73",
  w: "#1d6f7a", x: "#5e9a98", z: "#a06fd0",
};
const WARM = ["#940015", "#f5c847", "#d76f04", "#b3b454", "#ca435f", "#e793b8", "#c2571a", "#d9a05b"];
const COOL = ["#3d5bc6", "#11919e", "#206f33", "#71bdf4", "#6239a0", "#8fe3ba", "#9887e8", "#9f268d", "#57769e", "#0b545c", "#4aa66a", "#8f52bf"];
const SIGNS = ["#8a8578", "#a59a86", "#6f7480", "#98a0a4", "#7c7468", "#b0aa9f"];

// ---------------------------------------------------------------------------------------------------------------- OKLab

const linear = (channel: number) => (channel <= 10.31475 ? channel / 3294.6 : ((channel / 255 + 0.055) / 1.055) ** 2.4);
const gamma = (light: number) => 255 * (light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055);

export function toOklab(colour: Rgb): [number, number, number] {
  const [r, g, b] = colour.map(linear);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

export function fromOklab([light, a, b]: readonly [number, number, number]): Rgb {
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const lights = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return lights.map((each) => Math.min(255, Math.max(0, gamma(Math.max(0, each))))) as unknown as Rgb;
}

/** The same glass before a dark ground: lighter, its chroma lowered until a screen can show it. */
function lit(colour: Rgb): Rgb {
  const [light, a, b] = toOklab(colour);
  const raised = 0.15 + 0.84 * light;
  for (let kept = 1; kept > 0.5; kept -= 0.05) {
    const made = fromOklab([raised, a * kept, b * kept]);
    if (Math.abs(toOklab(made)[0] - raised) < 0.004) return made;
  }
  return fromOklab([raised, a / 2, b / 2]);
}

// ---------------------------------------------------------------------------------------------------------------- glass

/** FNV-1a over UTF-16 units. */
function hashed(text: string): number {
  let hash = 2166136261;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 16777619);
  return hash >>> 0;
}

/** What stays of a piece without the mark of a space before it, without accents and capitals, and without a common ending. */
export function stem(token: string): string {
  const bare = token.replace(/^[\s\u0120\u2581\u010a#\u2423\u21b5\u21e5]+/, "").normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  return bare.length > 4 ? bare.replace(/(?:ing|ed|es|ly|s|'s|mente|ando|endo|ar|er|ir|os|as)$/, "") : bare;
}

/** A gap in a sentence: an empty pane. */
export const EMPTY = "\u25a2";

const glasses: Record<Theme, Map<string, Rgb>> = { light: new Map(), dark: new Map() };

function onPaper(token: string): Rgb {
  if (!/[^\s\u0120\u2581\u010a\u2423\u21b5\u21e5\u240d\u237d\u25a2]/.test(token)) return INKS.light.clear;
  const bare = stem(token);
  if (bare.length === 1 && LETTERS[bare]) {
    const glass = rgb(LETTERS[bare]);
    if (token === token.toLowerCase()) return glass;
    const [light, a, b] = toOklab(glass);
    return fromOklab([light - 0.045, a, b]);
  }
  const shelf = !/[\p{L}]/u.test(bare) ? SIGNS : "aeiouy".includes(bare[0]) ? WARM : COOL;
  return rgb(shelf[hashed(bare) % shelf.length]);
}

/** The glass of a token, at full strength. */
export function glassOf(token: string, theme: Theme): Rgb {
  const known = glasses[theme].get(token);
  if (known) return known;
  const paper = onPaper(token);
  const made = theme === "light" ? paper : lit(paper);
  glasses[theme].set(token, made);
  return made;
}

export const isClear = (token: string): boolean => glassOf(token, "light") === INKS.light.clear;

/** A mixture: `amount` of `over` before `under`. */
export const blend = (under: Rgb, over: Rgb, amount: number): Rgb =>
  under.map((each, at) => each + (over[at] - each) * amount) as unknown as Rgb;

export function luminance(colour: Rgb): number {
  const [r, g, b] = colour.map(linear);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export function contrast(one: Rgb, other: Rgb): number {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

const BLACK: Rgb = [0, 0, 0];
const WHITE: Rgb = [255, 255, 255];

/** The ink to write with on a colour: the page's own where 4.5 : 1 is reached, else black or white, one of which always does. */
export function inkOn(colour: Rgb): Rgb {
  for (const ink of [INKS.light.ink, INKS.light.ground]) if (contrast(ink, colour) >= 4.5) return ink;
  return contrast(BLACK, colour) >= contrast(WHITE, colour) ? BLACK : WHITE;
}

/** A pane: the token's glass before the page's ground, as strong as `amount`, and the ink on it. */
export function pane(token: string, amount: number, theme: Theme): { fill: Rgb; ink: Rgb } {
  const { ground } = INKS[theme];
  const fill = blend(ground, glassOf(token, theme), Math.min(1, Math.max(0, isClear(token) ? amount * 0.12 : amount)));
  return { fill, ink: isClear(token) ? INKS[theme].soft : inkOn(fill) };
}

// ---------------------------------------------------------------------------------------------------------------- letters

const SHOWN: Record<string, string> = { " ": "\u2423", "\n": "\u21b5", "\t": "\u21e5", "\r": "\u240d", "\u00a0": "\u237d" };

/** A token with its whitespace visible. */
export function visible(token: string): string {
  if (token === "") return "\u2205";
  return token.replace(/[\u0120\u2581]/g, " ").replace(/\u010a/g, "\n").replace(/[\s\u00a0]/g, (each) => SHOWN[each] ?? "\u2423")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\p{Surrogate}]/gu, "\ufffd");
}
