// Numbers and formulas as `vitral.explanation.formulas` writes them: MathML Core, ∞ and −, a decimal comma in Portuguese.

import { Expression, worth } from "./arithmetic";

export interface Manner {
  digits: number;
  comma: boolean;
  /** The number of the first row and column. */
  first: number;
  /** "… {count} more, {total} together". */
  more: string;
}

const MOST_TERMS = 5;

/** A number with a fixed number of decimals; exact halves go to the even digit, as in Python. */
export function fixed(value: number, digits: number): string {
  const doubled = Math.abs(value) * 2 ** (digits + 1);
  if (Number.isSafeInteger(doubled) && doubled % 2 === 1) {
    const lower = (doubled * 5 ** digits - 1) / 2;
    if (lower % 2 === 0 && Number.isSafeInteger(lower)) return (value < 0 ? "-" : "") + (lower / 10 ** digits).toFixed(digits);
  }
  return value.toFixed(digits);
}

export function written(value: number, digits: number, comma: boolean): string {
  if (Number.isNaN(value)) return "?";
  if (Math.abs(value) === Infinity) return value > 0 ? "∞" : "−∞";
  const text = fixed(Math.abs(value), digits);
  const signed = value < 0 && Number(text) !== 0 ? `−${text}` : text;
  return comma ? signed.replace(".", ",") : signed;
}

/** Without trailing zeros: 0.5, not 0.500. */
export function shortest(value: number, { digits, comma }: Manner): string {
  let fewer = 0;
  while (fewer < digits && Math.abs(Number(value.toFixed(fewer)) - value) >= 1e-9) fewer++;
  return written(value, Number.isFinite(value) ? fewer : digits, comma);
}

const escaped = (text: string) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const tag = (name: string, inside: string) => `<${name}>${inside}</${name}>`;
const sign = (text: string) => tag("mo", text);
const brackets = (inside: string) => tag("mrow", sign("(") + inside + sign(")"));

export function cellName(name: string, index: number[], first: number): string {
  const shown = (index.length === 3 ? index.slice(1) : index).map((each) => each + first).join(",");
  const matrix = /^([wb])_([a-z]+)$/.exec(name);
  const below = tag("mtext", shown);
  if (matrix) {
    const letter = matrix[1] === "w" ? "W" : "b";
    const above = matrix[2].length === 1 ? matrix[2].toUpperCase() : matrix[2];
    return tag("msubsup", tag("mi", letter) + below + tag("mi", above));
  }
  return tag("msub", tag("mi", escaped(name)) + below);
}

/** 1 over the root of a whole number, which a scale usually is. */
export function rootOf(value: number): number | null {
  const below = 1 / (value * value);
  const whole = Math.round(below);
  return value > 0 && value < 1 && whole > 1 && Math.abs(below - whole) < 1e-9 * whole && Math.sqrt(whole) % 1 !== 0 ? whole : null;
}

export class Writer {
  constructor(private readonly manner: Manner, private readonly names: boolean) {}

  number(value: number): string {
    const root = rootOf(value);
    if (root !== null) return tag("mfrac", tag("mn", "1") + tag("msqrt", tag("mn", String(root))));
    const text = shortest(value, this.manner);
    const digits = text.replace("−", "");
    const shown = digits === "∞" ? tag("mi", "∞") : tag("mn", digits);
    return text.startsWith("−") ? tag("mrow", sign("−") + shown) : shown;
  }

  negative(expression: Expression): boolean {
    switch (expression.kind) {
      case "cell":
        return !this.names && shortest(expression.value, this.manner).startsWith("−");
      case "number":
      case "part":
        return shortest(expression.value, this.manner).startsWith("−");
      case "product":
        return this.negative(expression.factors[0]);
      case "fraction":
        return this.negative(expression.above);
      default:
        return false;
    }
  }

  write(expression: Expression): string {
    switch (expression.kind) {
      case "cell":
        return this.names ? cellName(expression.name, expression.index, this.manner.first) : this.number(expression.value);
      case "number":
      case "part":
        return this.number(expression.value);
      case "sum":
        return this.sum(expression.terms);
      case "difference":
        return this.write(expression.left) + sign("−") + this.inside(expression.right, true);
      case "product":
        return expression.factors.map((factor, place) => this.inside(factor, place > 0)).join(sign("·"));
      case "fraction":
        return tag("mfrac", tag("mrow", this.write(expression.above)) + tag("mrow", this.write(expression.below)));
      case "root":
        return tag("msqrt", this.write(expression.inside));
      case "exp":
        return tag("msup", tag("mi", "e") + tag("mrow", this.write(expression.exponent)));
      case "power": {
        const simple = expression.base.kind === "cell" && !this.negative(expression.base);
        const base = this.write(expression.base);
        return tag("msup", (simple ? base : brackets(base)) + tag("mrow", this.write(expression.exponent)));
      }
      case "apply": {
        const comma = sign(this.manner.comma ? ";" : ",");
        return tag("mi", expression.name) + brackets(expression.given.map((each) => this.write(each)).join(comma));
      }
    }
  }

  private inside(expression: Expression, later: boolean): string {
    const loose = expression.kind === "sum" || expression.kind === "difference";
    return loose || (later && this.negative(expression)) ? brackets(this.write(expression)) : this.write(expression);
  }

  /** The terms; of a long sum the largest, and the number and the sum of the others. */
  private sum(terms: Expression[]): string {
    const largest = terms.map((term, place) => [Math.abs(worth(term)), place]).sort((one, other) => other[0] - one[0] || one[1] - other[1]);
    const cut = terms.length > MOST_TERMS + 1;
    const shown = new Set((cut ? largest.slice(0, MOST_TERMS) : largest).map(([, place]) => place));
    const rest = terms.filter((_, place) => !shown.has(place));
    let text = "";
    terms.forEach((term, place) => {
      if (!shown.has(place)) return;
      const minus = this.negative(term);
      const inside = this.inside(minus ? negated(term) : term, false);
      text += text ? sign(minus ? "−" : "+") + inside : (minus ? sign("−") : "") + inside;
    });
    if (!rest.length) return text;
    const total = shortest(rest.reduce((all, term) => all + worth(term), 0), this.manner);
    const words = this.manner.more.replace("{count}", String(rest.length)).replace("{total}", total);
    return `${text}${sign("+")}${tag("mtext", escaped(words))}`;
  }
}

function negated(expression: Expression): Expression {
  switch (expression.kind) {
    case "cell":
    case "number":
    case "part":
      return { kind: "number", value: -expression.value };
    case "product":
      return { ...expression, factors: [negated(expression.factors[0]), ...expression.factors.slice(1)] };
    case "fraction":
      return { ...expression, above: negated(expression.above) };
    default:
      return expression;
  }
}

/** The lines of an equation: the name, the rule in names, in numbers, the value. */
export function equation(target: string, expression: Expression | null, value: number, manner: Manner): string {
  const [inNames, inNumbers] = [true, false].map((names) => expression && new Writer(manner, names).write(expression));
  const result = new Writer({ ...manner }, false).write({ kind: "number", value });
  const sides = [inNames, inNumbers, rootOf(value) === null ? result : tag("mn", shortest(value, manner))];
  const lines: string[] = [];
  let before = "";
  for (const side of sides) {
    if (!side || side === before) continue;
    lines.push(tag("math", (lines.length ? "" : target) + sign("=") + side));
    before = side;
  }
  return lines.join("<br>");
}
