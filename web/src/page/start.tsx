// What every page begins with: the words, the state of the address, the panes.

import { effect } from "@preact/signals";
import { ComponentChildren, render } from "preact";
import { App } from "./app";
import { pressed } from "./keys";
import type { Source } from "./source";
import { changes, edits, ids, names, read, refresh, shown, source, text, theme, toggle, written } from "./state";
import { answer as swept } from "./sweep";
import { stops } from "./tour";
import { language, learn } from "./words";

/** Gives tests these parts, and those that every page has, by name. */
export function give(parts: Record<string, unknown>): void {
  Object.assign(globalThis, { vitralPage: { edits, ids, shown, source, swept, text, toggle, written, ...parts } });
}

/** The text of an element that the page has. */
export const content = (id: string): string => document.getElementById(id)?.textContent ?? "";

/**
 * Draws a page of the source that `opened` finds; without one it has said why.
 *
 * `readdressed` takes over a new fragment of the address; `above` stands above the panes.
 */
export async function start(opened: (page: HTMLElement) => Promise<Source | null>, readdressed: () => void, above?: ComponentChildren): Promise<void> {
  const page = typeof document === "undefined" ? null : document.getElementById("page");
  if (!page) return;
  language.value = document.documentElement.lang;
  try {
    learn(JSON.parse(content("words")));
    stops.value = JSON.parse(content("tour"));
  } catch {
    // A damaged part is told below, in English.
  }
  const from = await opened(page);
  if (from === null) return;
  source.value = from;
  read(location.hash);
  effect(() => {
    document.documentElement.lang = language.value;
  });
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
  });
  effect(() => {
    // Read by name: what is read for nothing, the bundler leaves out.
    if (ids.value && names.value && edits.value) void refresh();
  });
  remember(readdressed);
  addEventListener("keydown", pressed);
  render(null, page);
  page.replaceChildren();
  render(<App>{above}</App>, page);
  requestAnimationFrame(() => performance.mark("vitral: drawn"));
}

/** Milliseconds: browsers take only so many addresses in a while. */
const PAUSE = 250;
/** A text that is typed and a slider that is drawn are one step for Back, as long as the next change comes within these milliseconds. */
const [DRAWN, ONE_STEP] = [["text", "source", "x", "p", "t", "k", "q", "m", "u", "a"], 2000];

/** Keeps the state in the address, a moment after its last change and when the page is left; Back undoes a step. */
function remember(readdressed: () => void): void {
  let [waiting, kept, last, since] = [0, written(), "", 0];
  const write = (isStep: boolean) => {
    waiting = 0;
    const now = written();
    const changed = changes(kept, now);
    const isDrawn = changed.every((key) => DRAWN.includes(key)) && changed.at(-1) === last && performance.now() - since < ONE_STEP;
    const isNew = isStep && changed.length > 0 && !isDrawn;
    history[isNew ? "pushState" : "replaceState"](null, "", `#${now}`);
    [kept, last, since] = [now, changed.at(-1) ?? last, performance.now()];
  };
  effect(() => {
    written();
    clearTimeout(waiting);
    waiting = setTimeout(write, PAUSE, true);
  });
  addEventListener("hashchange", () => {
    readdressed();
    clearTimeout(waiting);
    last = "";
    write(false); // where Back has led is no step of its own
  });
  addEventListener("pagehide", () => waiting && write(false));
}
