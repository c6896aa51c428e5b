// Numbers as people type them: 0.5, 0,5, 1/3, −2, -inf.

export interface Typed {
  value: number;
  /** Digits after the point; a fraction has all of them. */
  decimals: number;
  /** The number as TOML: with a decimal point, a fraction in quotes. */
  toml: string;
}

const NUMBER = /^([+-]?)(\d*)(?:[.,](\d*))?(e[+-]?\d+)?$/i;
const ALL = 15;

function plain(text: string): Typed | null {
  const match = NUMBER.exec(text);
  if (!match || (!match[2] && !match[3])) return null;
  const [, sign, whole, decimals = "", exponent = ""] = match;
  const toml = `${sign === "-" ? "-" : ""}${whole.replace(/^0+(?=\d)/, "") || "0"}${decimals && `.${decimals}`}${exponent}`;
  const value = Number(toml);
  return Number.isFinite(value) ? { value, decimals: exponent ? ALL : decimals.length, toml } : null;
}

/** What a text says; null if it is no number. */
export function typed(text: string, infinite = false): Typed | null {
  const tidy = text.trim().replace(/[−–]/g, "-").replace(/\s+/g, "");
  if (infinite && /^[+-]?(inf|∞|oo)$/i.test(tidy)) {
    const value = tidy.startsWith("-") ? -Infinity : Infinity;
    return { value, decimals: ALL, toml: value < 0 ? '"-inf"' : '"inf"' };
  }
  const [above, below, ...more] = tidy.split("/");
  if (below === undefined) return plain(tidy);
  const [one, other] = [plain(above), plain(below)];
  if (more.length || !one || !other || other.value === 0) return null;
  return { value: one.value / other.value, decimals: ALL, toml: `"${one.toml}/${other.toml}"` };
}
