// Pairs of numbers as hands of dials: before and after they are turned.

import { css, glassOf, INKS, Theme } from "./colour";
import { Drawn, useScene } from "./drawn";
import { Numbers } from "./plain";
import { Scene } from "./scene";
import { theme } from "./theme";

/** `pairs`: the places of the two numbers of each pair, how far to the right and how far up. */
interface Props { before: Numbers; after: Numbers; pairs: readonly (readonly [number, number])[]; token: string; width: number; label: string }

const [STEP, RADIUS] = [34, 14];

/** A dial for each pair; a hand is as long as the root of its pair's length, the longest as long as the dial is wide. */
export function dialsScene({ before, after, pairs, token, width }: Omit<Props, "label">, look: Theme): Scene {
  const inks = INKS[look];
  const across = Math.max(1, Math.floor(width / STEP));
  const longest = Math.max(1e-12, ...pairs.map(([x, y]) => Math.hypot(after[x], after[y])));
  const [circles, thin, bold] = [[] as string[], [] as string[], [] as string[]];
  pairs.forEach(([x, y], pair) => {
    const [left, top] = [(pair % across) * STEP + RADIUS + 1, Math.floor(pair / across) * STEP + RADIUS + 1];
    circles.push(`M${left - RADIUS} ${top}a${RADIUS} ${RADIUS} 0 1 0 ${2 * RADIUS} 0a${RADIUS} ${RADIUS} 0 1 0 ${-2 * RADIUS} 0z`);
    for (const [hands, numbers] of [[thin, before], [bold, after]] as const) {
      const length = Math.hypot(numbers[x], numbers[y]) || 1e-12;
      const reach = ((RADIUS - 1) * Math.sqrt(length / longest)) / length;
      hands.push(`M${left} ${top}l${(numbers[x] * reach).toFixed(2)} ${(-numbers[y] * reach).toFixed(2)}`);
    }
  });
  return {
    width, height: Math.ceil(pairs.length / across) * STEP, shapes: [
      { kind: "path", d: circles.join(""), stroke: css(inks.hair), width: 1 },
      { kind: "path", d: thin.join(""), stroke: css(inks.minus), width: 1.25 },
      { kind: "path", d: bold.join(""), stroke: css(glassOf(token, look)), width: 3 },
    ],
  };
}

export function Dials({ label, before, after, pairs, token, width }: Props) {
  return <Drawn label={label} scene={useScene(() => dialsScene({ before, after, pairs, token, width }, theme.value), [before, after, pairs, token, width])} />;
}
