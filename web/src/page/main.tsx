// The script of a page that carries its model: compares, and draws; where it is damaged or computes other numbers, the page
// says so and draws nothing.

import { render } from "preact";
import { inner, worth } from "../arithmetic";
import { ownSha256 } from "./bytes";
import { Carried, PARTS, Parts, Refused, difference } from "./carried";
import { Ngrams } from "./ngrams";
import { sheet } from "./numbers/opened";
import { Remote, Sheet, leads, openable } from "./numbers/opening";
import { digitsOf, equation, leaves, textOf } from "./numbers/telling";
import { Refusing } from "./panes/Refusing";
import type { Source } from "./source";
import { content, give, start } from "./start";
import { batch, computed, effect, signal } from "./signals";
import { read } from "./state";
import { tokenizerOf } from "./tokens";

give({
  ...{ Carried, Ngrams, Remote, Sheet, batch, computed, difference, digitsOf, effect, equation, inner, leads, leaves, openable },
  ...{ ownSha256, sheet, signal, textOf, tokenizerOf, worth },
});

async function carried(page: HTMLElement): Promise<Source | null> {
  try {
    return await Carried.open(Object.fromEntries([...PARTS, "seal"].map((part) => [part, content(part)])) as Parts);
  } catch (error) {
    const reason = error instanceof Refused ? error.reason : ({ kind: "unable", reason: String(error) } as const);
    page.replaceChildren();
    render(<Refusing reason={reason} />, page);
    return null;
  }
}

void start(carried, () => read(location.hash));
