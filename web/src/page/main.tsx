// The script of the page: opens what the page carries, compares, and draws. For tests, its parts by name.

import { effect } from "@preact/signals";
import { render } from "preact";
import { App, Refusing } from "./app";
import { Carried, PARTS, Parts, Refused, difference } from "./carried";
import { tensorsOf, tokenIn } from "./served";
import type { Source } from "./source";
import { ownSha256 } from "./bytes";
import { edits, ids, names, read, refresh, source, text, theme, written } from "./state";
import { Opening, complete, connect } from "./panes/Connection";
import { Ngrams } from "./ngrams";
import { tokenizerOf } from "./tokens";
import { language, learn, number, t } from "./words";

export { Carried, Ngrams, difference, language, learn, number, ownSha256, t, tensorsOf, tokenIn, tokenizerOf };

const content = (id: string): string => document.getElementById(id)?.textContent ?? "";

/** What the page carries; where it is damaged or computes other numbers, the page says so and draws nothing. */
async function carried(page: HTMLElement, parts: Parts): Promise<Source | null> {
  try {
    return await Carried.open(parts);
  } catch (error) {
    const reason = error instanceof Refused ? error.reason : ({ kind: "damaged", part: "graph" } as const);
    page.replaceChildren();
    render(<Refusing reason={reason} />, page);
    return null;
  }
}

/** What a server has, by the token in the address, which is removed from there. */
async function served(page: HTMLElement): Promise<Source | null> {
  const { token, rest } = tokenIn(location.hash);
  history.replaceState(null, "", location.pathname + rest);
  page.replaceChildren();
  render(<Opening />, page);
  try {
    return await connect(token);
  } catch (error) {
    render(<Opening reason={error instanceof Error ? error.message : String(error)} />, page);
    return null;
  }
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
  text.value = opened.about.passages[0] ?? "";
  read(location.hash);
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
  effect(() => {
    history.replaceState(null, "", `#${written()}`);
  });
  addEventListener("hashchange", () => read(location.hash));
  render(null, page);
  page.replaceChildren();
  render(<App />, page);
  void complete();
}

if (typeof document !== "undefined") {
  const page = document.getElementById("page");
  if (page) void start(page);
}
