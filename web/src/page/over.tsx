// The script of a page over a server, which has everything by the token in the address.

import { render } from "preact";
import { Connection, Opening, complete, connect, renew } from "./panes/Connection";
import { kept, tensorsOf, tokenIn } from "./served";
import type { Source } from "./source";
import { give, start } from "./start";
import { read, written } from "./state";

give({ tensorsOf });

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

void start(served, readdressed, <Connection />).then(complete);
