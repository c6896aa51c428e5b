// The arithmetic of a cell as people read it: an equation whose numbers can be opened, and its terms.

import { Expression, inner, worth } from "../../arithmetic";
import { rootOf, shortest, Manner } from "../../writing";
import type { Way } from "./opening";

/** A piece of an equation: a text, or a number that can be opened. */
export type Piece = string | { text: string; way: Way };

/** Terms of a long sum that an equation writes out: the largest. */
const MOST_TERMS = 5;
/** Digits of the largest number of an equation. */
const SIGNIFICANT = 5;
const MOST_DIGITS = 9;
/** Digits of a number that has none among the decimals. */
const DIGITS_OF_SMALL = 3;

/** The decimals of an equation: as many as its largest number has use for. */
export function digitsOf(...values: readonly number[]): number {
  const largest = values.reduce((most, each) => (Number.isFinite(each) ? Math.max(most, Math.abs(each)) : most), 0);
  if (largest === 0) return 3;
  return Math.min(MOST_DIGITS, Math.max(1, SIGNIFICANT - 1 - Math.floor(Math.log10(largest))));
}

/** All numbers that an expression writes. */
export function leaves(expression: Expression): number[] {
  const inside = inner(expression);
  return inside.length ? inside.flatMap(leaves) : [worth(expression)];
}

/** Places of terms in the order of their size, the largest first. */
export const bySize = (terms: readonly Expression[]): number[] => {
  const sizes = terms.map((term) => Math.abs(worth(term)));
  return terms.map((_, place) => place).sort((one, other) => sizes[other] - sizes[one] || one - other);
};

/** The sum of some terms. */
export const together = (terms: readonly Expression[]): number => terms.reduce((all, term) => all + worth(term), 0);

/** A number that stands in a formula, such as a norm's ε: never 0 where it is not. */
function plain(value: number, manner: Manner): string {
  const written = shortest(value, manner);
  if (value === 0 || !Number.isFinite(value) || /[1-9]/.test(written)) return written;
  const [digits, power] = Number(value.toPrecision(DIGITS_OF_SMALL)).toExponential().split("e");
  return `${digits.replace("-", "−").replace(".", manner.comma ? "," : ".")}e${power}`;
}

const loose = (expression: Expression): boolean => expression.kind === "sum" || expression.kind === "difference";
const NAMES: Record<string, string> = { gelu: "GELU", gelu_tanh: "TanhGELU" };

class Teller {
  constructor(private readonly manner: Manner, private readonly root: string[]) {}

  number(value: number): string {
    const root = rootOf(value);
    return root === null ? plain(value, this.manner) : `1/√${root}`;
  }

  write(expression: Expression, path: number[]): Piece[] {
    const at = (each: Expression, step: number): Piece[] => this.write(each, [...path, step]);
    switch (expression.kind) {
      case "cell":
      case "part":
        return [{ text: shortest(expression.value, this.manner), way: { expression, path } }];
      case "number":
        return [this.number(expression.value)];
      case "sum":
        return this.sum(expression.terms, path);
      case "difference":
        return [...at(expression.left, 0), " − ", ...this.factor(expression.right, [...path, 1])];
      case "product":
        return expression.factors.flatMap((each, step) => [...(step ? ["·"] : []), ...this.factor(each, [...path, step])]);
      case "fraction":
        return [...this.factor(expression.above, [...path, 0]), " / ", ...this.below(expression.below, [...path, 1])];
      case "root":
        return ["√(", ...at(expression.inside, 0), ")"];
      case "power": {
        const exponent = at(expression.exponent, 1);
        return ["(", ...at(expression.base, 0), ")^", ...(expression.exponent.kind === "number" ? exponent : ["(", ...exponent, ")"])];
      }
      case "exp":
        return ["exp(", ...at(expression.exponent, 0), ")"];
      case "apply": {
        const comma = this.manner.comma ? "; " : ", ";
        return [NAMES[expression.name] ?? expression.name, "(", ...expression.given.flatMap((each, step) => [...(step ? [comma] : []), ...at(each, step)]), ")"];
      }
    }
  }

  private factor(expression: Expression, path: number[]): Piece[] {
    const written = this.write(expression, path);
    const first = written[0];
    const minus = (typeof first === "string" ? first : first.text).startsWith("−");
    const isFraction = expression.kind === "fraction" || (expression.kind === "number" && rootOf(expression.value) !== null);
    return loose(expression) || minus || isFraction ? ["(", ...written, ")"] : written;
  }

  private below(expression: Expression, path: number[]): Piece[] {
    const simple = ["cell", "part", "root", "apply", "exp"].includes(expression.kind) || (expression.kind === "number" && rootOf(expression.value) === null);
    const written = this.write(expression, path);
    const first = written[0];
    return simple && !(typeof first === "string" ? first : first.text).startsWith("−") ? written : ["(", ...written, ")"];
  }

  /** The largest terms in their order, and the number and the sum of the others. */
  private sum(terms: readonly Expression[], path: number[]): Piece[] {
    const shown = new Set(terms.length > MOST_TERMS + 1 ? bySize(terms).slice(0, MOST_TERMS) : terms.map((_, place) => place));
    const pieces: Piece[] = [];
    terms.forEach((term, place) => {
      if (!shown.has(place)) return;
      const written = this.write(term, [...path, place]);
      const [first] = written;
      if (pieces.length) {
        const text = typeof first === "string" ? first : first.text;
        const minus = text.startsWith("−");
        pieces.push(minus ? " − " : " + ");
        if (minus) written[0] = typeof first === "string" ? first.slice(1) : { ...first, text: first.text.slice(1) };
      }
      pieces.push(...written);
    });
    const rest = terms.filter((_, place) => !shown.has(place));
    if (!rest.length) return pieces;
    const [one, several] = this.root;
    const words = (rest.length === 1 ? one : several).replace("{n}", String(rest.length));
    return [...pieces, " + ", words.replace("{sum}", shortest(together(rest), this.manner))];
  }
}

/** The equation of an expression in numbers. `more`: the words for one left-out term, and for several. */
export const equation = (expression: Expression, manner: Manner, more: [string, string]): Piece[] =>
  new Teller(manner, more).write(expression, []);

export const textOf = (pieces: readonly Piece[]): string => pieces.map((each) => (typeof each === "string" ? each : each.text)).join("");

/** The longest sum of an expression, with the steps to it: what is shown term by term. */
export function mainSum(expression: Expression): { terms: Expression[]; path: number[] } | null {
  let found: { terms: Expression[]; path: number[] } | null = null;
  const look = (each: Expression, path: number[]): void => {
    if (each.kind === "sum" && each.terms.length > 1 && each.terms.length > (found?.terms.length ?? 0)) found = { terms: each.terms, path };
    if (each.kind === "sum" || each.kind === "cell" || each.kind === "part") return;
    inner(each).forEach((one, step) => look(one, [...path, step]));
  };
  look(expression, []);
  return found;
}

/** The parts of an expression outside of a sum that is shown term by term; itself in parts, if it has no sum. */
export function besides(expression: Expression, sum: number[] | null): Way[] {
  const ways: Way[] = [];
  const look = (each: Expression, path: number[]): void => {
    if (sum && path.join() === sum.join()) return;
    if (each.kind === "cell" || each.kind === "part") ways.push({ expression: each, path });
    else inner(each).forEach((one, step) => look(one, [...path, step]));
  };
  look(expression, []);
  return ways;
}
