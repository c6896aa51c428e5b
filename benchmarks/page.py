"""`python -m benchmarks.page FILE.html`: how fast a page that carries its run is, in Chromium, from a file.

Prints the size of the file, the weight of script and style and of the words, how soon the page can be used, and the
milliseconds of a traced sentence, a keystroke and a switched part, each with the machine's load. A keystroke lasts from
its event to the frame in which every pane has been drawn; the processor time of the page's thread is what it costs
however loaded the machine is.
"""

import argparse
import gzip
import os
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitral.page.document import as_text, asset, words

ROUNDS = 30
TOKENS = 50
FRAMES = """
const after = new MessageChannel();
const drawn = () => new Promise((done) => requestAnimationFrame(() => {
  after.port1.onmessage = done;
  after.port2.postMessage(0);
}));
const settled = async () => { await drawn(); await drawn(); };
const field = document.querySelector("main input[type=text], main textarea");
const type = (text) => { field.value = text; field.dispatchEvent(new Event("input", { bubbles: true })); };
const { about } = vitralPage.source.value;
const letters = about.passages.join(" ").repeat(99).slice(0, tokens + rounds);
"""
KEYSTROKES = f"""async ([rounds, tokens]) => {{{FRAMES}
  const times = [];
  for (let round = 0; round < rounds; round++) {{
    type(letters.slice(round, round + tokens - 1));
    await settled();
    const start = performance.now();
    type(letters.slice(round, round + tokens));
    await drawn();
    times.push(performance.now() - start);
  }}
  return times;
}}"""
SWITCHES = f"""async ([rounds, tokens]) => {{{FRAMES}
  type(letters.slice(0, tokens));
  await settled();
  const times = [];
  for (let round = 0; round < rounds; round++) {{
    const start = performance.now();
    vitralPage.toggle("blocks.0.attn.z", round % 2);
    await drawn();
    times.push(performance.now() - start);
    await settled();
  }}
  return times;
}}"""
TRACES = """async ([rounds, tokens]) => {
  const { source, about = source.value.about } = vitralPage;
  const times = [];
  for (let round = 0; round < rounds; round++) {
    // Another sentence each time: rows of one that was read before are not computed again.
    const length = Math.min(tokens, about.context);
    const ids = Array.from({ length }, (_, at) => 1 + (at + round) % (about.vocabulary - 1));
    const start = performance.now();
    await source.value.trace(ids, about.names, []);
    times.push(performance.now() - start);
  }
  return times;
}"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one page and print a line for each number."""
    from playwright.sync_api import sync_playwright

    given = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    given.add_argument("page", type=Path)
    file = given.parse_args(arguments).page.resolve()
    weight = sum(len(gzip.compress(asset(name).encode("utf-8"), 9)) for name in ("page.js", "page.css"))
    words_size = len(gzip.compress(as_text(words()).encode("ascii"), 9))
    print(f"file {file.stat().st_size / 1e6:.2f} MB")
    print(f"compressed: script and style {weight / 1e3:.1f} kB, words {words_size / 1e3:.1f} kB")
    with sync_playwright() as playwright:
        where = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=where, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True).new_page()
        usable = []
        for _ in range(5):
            page.goto(file.as_uri())
            page.locator("main h1").wait_for()
            usable.append(page.evaluate("() => performance.getEntriesByName('vitral: drawn')[0].startTime"))
        _print("usable after opening", usable)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def busy() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

        changes = (("traced sentence", TRACES, 1), ("keystroke", KEYSTROKES, 2), ("switched part", SWITCHES, 1))
        for name, script, count in changes:
            before = busy()
            _print(name, page.evaluate(script, [ROUNDS, TOKENS]))
            print(f"  the page's thread: {1000 * (busy() - before) / ROUNDS / count:.1f} ms of processor time each")
        browser.close()
    return 0


def _print(name: str, times: Any) -> None:
    ordered = sorted(times)
    last = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    load = os.getloadavg()[0]
    print(f"{name}: median {statistics.median(ordered):.1f} ms, p95 {last:.1f} ms (load {load:.1f})")


if __name__ == "__main__":
    raise SystemExit(main())
