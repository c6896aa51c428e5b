// The script of a page. One that carries its model compares, and draws; where it is damaged or computes other numbers, it says
// so and draws nothing. One over a server has everything by the token in the address.

import { render } from "preact";
import { inner, worth } from "../arithmetic";
import { ownSha256 } from "./bytes";
import { isBackground, work } from "./compute/background";
import { Carried, MORE, PARTS, Parts, Refused } from "./carried";
import { scenes } from "./marks/drawn";
import { Ngrams } from "./ngrams";
import { Remote, Sheet, leads, openable } from "./numbers/opening";
import { digitsOf, equation, leaves, textOf } from "./numbers/telling";
import { Connection, Opening, complete, connect, renew } from "./panes/Connection";
import { fillings } from "./panes/Gaps";
import { Refusing } from "./panes/Refusing";
import { kept, tensorsOf, tokenIn } from "./served";
import type { Source } from "./source";
import { content, give, start } from "./start";
import { batch, effect } from "@preact/signals";
import { beside, read, relation, run, source, written } from "./state";
import { tokenizerOf } from "./tokens";
import { reasonOf } from "./words";

give({
  ...{ Carried, Ngrams, Remote, Sheet, digitsOf, equation, fillings, inner, leads, leaves, openable, ownSha256, scenes, tensorsOf, textOf, tokenizerOf, worth },
});

/** The run that the address names. */
const named = () => Number(new URLSearchParams(location.hash.slice(1)).get("n"));

async function carried(page: HTMLElement): Promise<Source | null> {
  try {
    const first = await Carried.open(Object.fromEntries([...PARTS, ...MORE, "seal"].map((part) => [part, content(part)])) as Parts);
    if (!first.beside) return first;
    relation.value = first.relation!;
    run.value = named();
    effect(() => {
      const from = run.value === 1 ? first.beside! : first;
      batch(() => {
        source.value = from;
        beside.value = from.beside!;
      });
    });
    return source.value;
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
    render(<Opening reason={reasonOf(error)} />, page);
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

/** Whether the page carries its model, whole or not: one over a server has its words and its tour alone. */
const carries = typeof document !== "undefined" && [...PARTS, "seal"].some((part) => !["words", "tour"].includes(part) && document.getElementById(part));
if (isBackground) work();
else if (carries)
  void start(carried, () => {
    run.value = named(); // first: edits and cells are those of a model
    read(location.hash);
  });
else void start(served, readdressed, <Connection />).then(complete);
