// The draw: a rod one long, cut into the tokens' shares in the order of the vocabulary. A random number falls on it; drag it.

import { useRef } from "preact/hooks";
import { css, glassOf, inkOn, INKS, isClear, Theme, visible } from "./colour";
import { Common, Drawn, useScene } from "./drawn";
import { Numbers } from "./plain";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";
import { number } from "../words";

export interface RodProps extends Common {
  tokens: readonly string[];
  /** The share of each token, in the order in which the draw adds them up. */
  shares: Numbers;
  /** Thin rods beneath, of other shares for the same tokens. */
  others?: readonly Numbers[];
  /** The random number, 0 … 1. */
  u: number;
  onDraw?: (u: number) => void;
  width: number;
  /** What the token under the number says. */
  say(u: number, token: number): string;
}

/** The place of the first token whose cumulated share is above u. */
export function drawn(shares: Numbers, u: number): number {
  let [sum, last] = [0, 0];
  for (let at = 0; at < shares.length; at++) {
    if (shares[at] > 0) last = at;
    sum += shares[at];
    if (sum > u) return at;
  }
  return last;
}

const TOP = 40;
const TALL = 68;
const THIN = 14;

function rod(tokens: readonly string[], shares: Numbers, y: number, tall: number, width: number, look: Theme): Shape[] {
  const inks = INKS[look];
  const shapes: Shape[] = [];
  const crumbs: string[] = [];
  let sum = 0;
  for (let at = 0; at < tokens.length; at++) {
    const x = sum * width;
    sum += shares[at];
    const w = sum * width - x;
    if (!(w > 0)) continue;
    if (w < 0.8) {
      crumbs.push(`M${x.toFixed(2)} ${y}h${w.toFixed(2)}v${tall}h${(-w).toFixed(2)}z`);
      continue;
    }
    const glass = isClear(tokens[at]) ? inks.hair : glassOf(tokens[at], look);
    shapes.push({ kind: "rect", x, y, w, h: tall, fill: css(glass), ...(w > 3 ? { stroke: css(inks.leading), width: 0.75 } : {}) });
    const letters = visible(tokens[at]);
    const size = Math.min(tall * 0.42, 25, (w - 4) / (0.6 * [...letters].length));
    if (tall > 30 && size >= 10) shapes.push({ kind: "text", x: x + w / 2, y: y + tall / 2 + size * 0.33, text: letters, size, anchor: "middle", face: "serif", fill: css(inkOn(glass)) });
  }
  if (crumbs.length) shapes.push({ kind: "path", d: crumbs.join(""), fill: css(inks.clear) });
  shapes.push({ kind: "rect", x: 0, y, w: width, h: tall, stroke: css(inks.leading), width: 1 });
  return shapes;
}

export function rodScene(given: Pick<RodProps, "tokens" | "shares" | "others" | "u" | "width">, look: Theme): Scene {
  const { tokens, shares, others = [], u, width } = given;
  const inks = INKS[look];
  const shapes = rod(tokens, shares, TOP, TALL, width, look);
  others.forEach((each, at) => shapes.push(...rod(tokens, each, TOP + TALL + 9 + at * (THIN + 5), THIN, width, look)));
  const height = TOP + TALL + others.length * (THIN + 5) + 16;
  const x = u * width;
  const flag = Math.min(width - 44, Math.max(44, x));
  shapes.push({ kind: "rect", x: x - 2, y: 22, w: 4, h: height - 26, fill: css(inks.ground) });
  shapes.push({ kind: "rect", x: x - 1, y: 22, w: 2, h: height - 26, fill: css(inks.ink) });
  shapes.push({ kind: "rect", x: flag - 44, y: 0, w: 88, h: 26, fill: css(inks.ink), radius: 2 });
  shapes.push({ kind: "text", x: flag, y: 18, text: `u = ${number(u, 3)}`, size: 14, bold: true, anchor: "middle", fill: css(inks.ground) });
  return { width, height, shapes };
}

export function Rod(props: RodProps) {
  const { tokens, shares, others, u, onDraw, width, label, say } = props;
  const scene = useScene(() => rodScene({ tokens, shares, others, u, width }, theme.value), [tokens, shares, others, u, width]);
  const node = useRef<HTMLDivElement>(null);
  const clamped = (value: number) => Math.min(1 - 2 ** -24, Math.max(0, value));
  const pull = (event: PointerEvent) => {
    const frame = node.current!.getBoundingClientRect();
    onDraw?.(clamped((event.clientX - frame.left) / frame.width));
  };
  const token = drawn(shares, u);
  return (
    <Drawn label={label} scene={scene}>
      <div ref={node} class="mark-slider" role="slider" tabIndex={0} aria-label={label} aria-valuemin={0} aria-valuemax={1} aria-valuenow={Number(u.toFixed(4))}
        aria-valuetext={say(u, token)}
        onPointerDown={(event) => {
          node.current!.setPointerCapture(event.pointerId);
          pull(event);
        }}
        onPointerMove={(event) => { if (event.buttons) pull(event); }}
        onKeyDown={(event) => {
          const by = event.shiftKey ? 0.05 : 0.005;
          const to = { ArrowLeft: u - by, ArrowDown: u - by, ArrowRight: u + by, ArrowUp: u + by, PageDown: u - 0.1, PageUp: u + 0.1, Home: 0, End: 1 }[event.key];
          if (to === undefined) return;
          event.preventDefault();
          onDraw?.(clamped(to));
        }} />
    </Drawn>
  );
}
