// A sum as a walk: every term goes on from where the last one stopped, and the end is the total.

import { css, glassOf, INKS, isClear, Rgb, Theme } from "./colour";
import { Common, Drawn, useScene } from "./drawn";
import { lattice } from "./grid";
import { signed } from "./plain";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";

export interface Term {
  name: string;
  value: number;
  /** Can be opened further. */
  opens?: boolean;
  /** Drawn thin, without a number: one of many small ones. */
  small?: boolean;
}

export interface WalkProps extends Common {
  terms: readonly Term[];
  total: number;
  width: number;
  /** Tokens whose glass plus and minus have; lead for minus if it has none. */
  plus: string;
  minus?: string;
  /** Room for the names at the left; 0 writes them above the bars. */
  gutter?: number;
  digits?: number;
  say(row: number): string;
}

const TALL = 27;
const SMALL = 5;
const tallOf = (term: Term, gutter: number) => (term.small ? SMALL : gutter ? TALL : 38);

export function walkScene(given: Pick<WalkProps, "terms" | "total" | "width" | "plus" | "minus" | "gutter" | "digits">, look: Theme): Scene {
  const { terms, total, width, plus, minus, gutter = 150, digits } = given;
  const inks = INKS[look];
  let [sum, low, high] = [0, 0, 0];
  for (const { value } of terms) {
    sum += value;
    low = Math.min(low, sum);
    high = Math.max(high, sum);
  }
  low = Math.min(low, total);
  high = Math.max(high, total);
  const label = 7.6 * Math.max(...terms.map(({ value, small }) => (small ? 0 : signed(value, digits).length))) + 14;
  const [left, right] = [gutter ? gutter + Math.max(56, low < 0 ? label : 0) : low < 0 ? Math.max(52, label) : 2, width - Math.max(62, label)];
  const at = (value: number) => left + ((value - low) / (high - low || 1)) * Math.max(10, right - left);
  const glass = (token: string): Rgb => (isClear(token) ? inks.clear : glassOf(token, look));
  const colour = (value: number) => css(value >= 0 ? glass(plus) : minus === undefined ? inks.minus : glass(minus));
  /** A name at the right of the rail, else at its left, or across it where neither has room. */
  const beside = (name: string) => {
    const [wide, rail] = [7.2 * name.length, at(0)];
    if (rail + 6 + wide > width && rail - 6 >= wide) return { x: rail - 6, anchor: "end" as const };
    return { x: Math.max(0, Math.min(rail + 6, width - wide)) };
  };
  const shapes: Shape[] = [];
  let [y, from] = [2, 0];
  const rail: Shape = { kind: "rect", x: at(0) - 0.5, y: 0, w: 1, h: 0, fill: css(inks.leading) };
  shapes.push(rail);
  for (const term of terms) {
    const tall = tallOf(term, gutter);
    const to = from + term.value;
    const [x, w] = [Math.min(at(from), at(to)), Math.max(1, Math.abs(at(to) - at(from)))];
    const top = term.small ? y : gutter ? y + 4 : y + 17;
    const bar = term.small ? SMALL - 1 : 17;
    shapes.push({ kind: "rect", x, y: top, w, h: bar, fill: colour(term.value), ...(term.small ? {} : { stroke: css(inks.leading), width: 0.75 }) });
    if (!term.small) {
      shapes.push({ kind: "rect", x: at(to) - 0.5, y: top, w: 1, h: tall, fill: css(inks.leading) });
      shapes.push(gutter ? { kind: "text", x: 0, y: y + 17, text: term.name, size: 13, fill: css(inks.soft) }
        : { kind: "text", ...beside(term.name), y: y + 12, text: term.name, size: 13, fill: css(inks.soft) });
      const backwards = term.value < 0 && x - 7 - 7.6 * signed(term.value, digits).length >= gutter;
      shapes.push({ kind: "text", x: backwards ? x - 7 : x + w + 7, y: top + 13, text: signed(term.value, digits), anchor: backwards ? "end" : "start", size: 13, fill: css(inks.ink) });
    }
    y += tall;
    from = to;
  }
  const end = at(total);
  shapes.push({ kind: "rect", x: end - 1, y: y + 2, w: 2, h: 14, fill: css(inks.ink) });
  shapes.push({ kind: "text", x: Math.min(width - 4.6 * signed(total, digits).length, Math.max(gutter + 24, end)), y: y + 32, text: signed(total, digits), size: 15, bold: true, anchor: "middle", fill: css(inks.ink) });
  rail.h = y;
  return { width, height: y + 38, shapes };
}

export function Walk(props: WalkProps) {
  const { terms, total, width, plus, minus, gutter = width < 560 ? 0 : 150, digits, say } = props;
  const scene = useScene(() => walkScene({ terms, total, width, plus, minus, gutter, digits }, theme.value), [terms, total, width, plus, minus, gutter, digits]);
  const tops = [2];
  for (const term of terms) tops.push(tops[tops.length - 1] + tallOf(term, gutter));
  const cells = {
    ...lattice({ rows: terms.length, columns: 1, edges: [0, width], tall: TALL, rowName: (row) => terms[row].name, say: ({ row }) => say(row) }),
    at: (_: number, y: number) => {
      const row = tops.findIndex((top, place) => place < terms.length && y >= top && y < tops[place + 1]);
      return row < 0 ? null : { row, column: 0 };
    },
    box: ({ row }: { row: number }) => ({ x: 0, y: tops[row], w: width, h: tops[row + 1] - tops[row] }),
  };
  return <Drawn {...props} scene={scene} lattice={cells} />;
}
