// The script of the page: opens what the page carries, compares, and draws. For tests, its parts by name.

import { effect } from "@preact/signals";
import { render } from "preact";
import { App, Refusing } from "./app";
import { Carried, PARTS, Parts, Refused, difference } from "./carried";
import { kept, tensorsOf, tokenIn } from "./served";
import type { Source } from "./source";
import { ownSha256 } from "./bytes";
import { inner, worth } from "../arithmetic";
import { pressed } from "./keys";
import { edits, ids, names, read, refresh, shown, source, text, theme, toggle, written } from "./state";
import { Opening, complete, connect, renew } from "./panes/Connection";
import { Ngrams } from "./ngrams";
import { Remote, Sheet, leads, openable } from "./numbers/opening";
import { sheet } from "./numbers/opened";
import { digitsOf, equation, leaves, textOf } from "./numbers/telling";
import { open } from "./panes/Passages";
import { tokenizerOf } from "./tokens";
import { language, learn, number, t } from "./words";

export { edits, ids, shown, source, text, toggle, written };
export { Carried, Ngrams, difference, language, learn, number, ownSha256, t, tensorsOf, tokenIn, tokenizerOf };
export { Remote, Sheet, digitsOf, equation, inner, leads, leaves, openable, sheet, textOf, worth };

const content = (id: string): string => document.getElementById(id)?.textContent ?? "";

/** What the page carries; where it is damaged or computes other numbers, the page says so and draws nothing. */
async function carried(page: HTMLElement, parts: Parts): Promise<Source | null> {
  try {
    return await Carried.open(parts);
  } catch (error) {
    const reason = error instanceof Refused ? error.reason : ({ kind: "unable", reason: String(error) } as const);
    page.replaceChildren();
    render(<Refusing reason={reason} />, page);
    return null;
  }
}

/** What a server has, by the token in the address, which is removed from there, or that of the page before it was reloaded. */
async function served(page: HTMLElement): Promise<Source | null> {
  const { token, rest } = tokenIn(location.hash);
  history.replaceState(null, "", location.pathname + rest);
  page.replaceChildren();
  render(<Opening />, page);
  try {
    return await connect(kept(token));
  } catch (error) {
    render(<Opening reason={error instanceof Error ? error.message : String(error)} />, page);
    addEventListener("hashchange", () => tokenIn(location.hash).token && location.reload());
    return null;
  }
}

/** Takes over what the address says now: another state, or the token of a server that was started anew. */
function readdressed(): void {
  const { token } = tokenIn(location.hash);
  if (!token) return read(location.hash);
  history.replaceState(null, "", `#${written()}`);
  renew(kept(token));
}

async function start(page: HTMLElement): Promise<void> {
  const parts = Object.fromEntries([...PARTS, "seal"].map((part) => [part, content(part)])) as Parts;
  language.value = document.documentElement.lang;
  try {
    learn(JSON.parse(parts.words));
  } catch {
    // A damaged part is told below, in English.
  }
  const opened = content("served") ? await served(page) : await carried(page, parts);
  if (opened === null) return;
  source.value = opened;
  open(0);
  if (location.hash.length > 1) read(location.hash);
  else language.value = opened.about.language;
  effect(() => {
    document.documentElement.lang = language.value;
  });
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
  });
  effect(() => {
    void [ids.value, names.value, edits.value];
    void refresh();
  });
  remember();
  addEventListener("hashchange", readdressed);
  addEventListener("keydown", pressed);
  render(null, page);
  page.replaceChildren();
  render(<App />, page);
  requestAnimationFrame(() => performance.mark("vitral: drawn"));
  void complete();
}

/** Milliseconds: browsers take only so many addresses in a while. */
const PAUSE = 250;

/** Keeps the state in the address, a moment after its last change and when the page is left. */
function remember(): void {
  let waiting = 0;
  const write = () => {
    waiting = 0;
    history.replaceState(null, "", `#${written()}`);
  };
  effect(() => {
    written();
    clearTimeout(waiting);
    waiting = setTimeout(write, PAUSE);
  });
  addEventListener("pagehide", () => waiting && write());
}

if (typeof document !== "undefined") {
  const page = document.getElementById("page");
  if (page) void start(page);
}
