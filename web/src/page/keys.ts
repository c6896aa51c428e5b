// Keys of the whole page: one letter each, only while nothing is typed into. `?` lists them.

import { signal } from "@preact/signals";
import { block, chosen, edits, head, language, position, shown, origin, step, STEPS, theme, toggle, tour } from "./state";
import { begin, leave, present } from "./tour";
import { LANGUAGES, N, Sentence } from "./words";

/** Whether the list of keys is open. */
export const listed = signal(false);

interface Key {
  key: string;
  /** What it does; `t` translates it. */
  does: Sentence;
  run(): void;
}

const around = (value: number, by: number, count: number): number => (count ? (value + by + count) % count : 0);
const about = () => origin.value!.about;
const next = <One>(all: readonly One[], now: One): One => all[(all.indexOf(now) + 1) % all.length];

export const KEYS: readonly Key[] = [
  { key: "?", does: N("show or hide this list"), run: () => (listed.value = !listed.value) },
  { key: "/", does: N("type a sentence"), run: () => document.querySelector<HTMLElement>("main input[type=text], main textarea")?.focus() },
  { key: ",", does: N("choose the token before"), run: () => (chosen.value = Math.max(0, position.value - 1)) },
  {
    key: ".",
    does: N("choose the token after"),
    run: () => (chosen.value = Math.min((shown.value?.ids.length ?? 1) - 1, position.value + 1)),
  },
  { key: "h", does: N("the next head"), run: () => (head.value = around(head.value, 1, about().heads)) },
  { key: "H", does: N("the head before"), run: () => (head.value = around(head.value, -1, about().heads)) },
  { key: "b", does: N("the next block"), run: () => (block.value = around(block.value, 1, about().layers)) },
  { key: "B", does: N("the block before"), run: () => (block.value = around(block.value, -1, about().layers)) },
  { key: "s", does: N("the next step of attention"), run: () => (step.value = next(STEPS, step.value)) },
  {
    key: "x",
    does: N("switch this head off, or on again"),
    run: () => {
      const at = `blocks.${block.value}.attn.z`;
      if (about().names.includes(at)) toggle(at, head.value);
    },
  },
  {
    key: "X",
    does: N("switch this block's feed-forward off, or on again"),
    run: () => {
      const at = `blocks.${block.value}.mlp.out`;
      if (about().names.includes(at)) toggle(at);
    },
  },
  { key: "g", does: N("take the tour, or go to its card"), run: () => (tour.value ? document.getElementById("tour")?.focus() : present.value.length && begin()) },
  { key: "u", does: N("undo all changes"), run: () => (edits.value = []) },
  { key: "d", does: N("dark or light"), run: () => (theme.value = isDark() ? "light" : "dark") },
  { key: "l", does: N("the next language"), run: () => (language.value = next(Object.keys(LANGUAGES), language.value)) },
];

/** Whether the page is dark now, by the person's choice or the system's. */
export const isDark = (): boolean =>
  theme.value === "dark" || (theme.value === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);

const TYPED = "input:not([type=checkbox]):not([type=range]):not([type=radio]), textarea, select, [contenteditable]";

/** Runs the key of an event, if it has one and nobody types. */
export function pressed(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape" && listed.value) {
    listed.value = false;
    return;
  }
  if (event.key === "Escape" && tour.value) return leave();
  if ((event.target as Element | null)?.closest?.(TYPED)) return;
  const found = KEYS.find(({ key }) => key === event.key);
  if (!found) return;
  event.preventDefault();
  found.run();
}
