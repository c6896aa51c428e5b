"""Pages of small models: their parts, their script in node, the page in Chromium."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from browser import CHROMIUM, NODE
from torch import Tensor

from vitral.data import Tokenizer
from vitral.inspection.lens import lens_logits
from vitral.model import Transformer
from vitral.page.content import PageContent, about_model, graphs_of
from vitral.page.self_check import checks_of

CLOSE = 1e-4
"""How near a page comes to PyTorch, relative to the largest number of a value."""
LOAD = """
const vm = require("vm"), fs = require("fs");
const [source, body, given] = JSON.parse(fs.readFileSync(0, "utf8"));
vm.runInThisContext(source + ";globalThis.vitralPage = vitralPage");
const told = (value) => ({ shape: value.shape, kind: value.data.constructor.name,
  data: Buffer.from(Float32Array.from(value.data).buffer).toString("base64") });
const open = async (parts) => {
  try {
    return await vitralPage.Carried.open(parts);
  } catch (error) {
    return { refused: error.reason ?? String(error.stack) };
  }
};
const Rule = Object.getPrototypeOf(async () => {}).constructor;
new Rule("given", "told", "open", body)(given, told, open).then(
  (made) => process.stdout.write(JSON.stringify(made)),
  (error) => { console.error(error.stack); process.exit(1); },
);
"""


def script() -> str:
    """The page's script."""
    return (resources.files("vitral.page") / "assets" / "page.js").read_text(encoding="utf-8")


def in_page(body: str, given: Any, source: str | None = None) -> Any:
    """The result of a JavaScript function body with `given`, beside the page's script."""
    data = json.dumps([script() if source is None else source, body, given])
    done = subprocess.run([NODE or "node", "-e", LOAD], input=data, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def content_of(model: Transformer, tokenizer: Tokenizer, text: str, name: str = "a model") -> PageContent:
    """What a page of a model carries, with this sentence."""
    about = about_model(model, tokenizer) | {"name": name, "step": 1, "passages": [text], "commands": {}}
    graphs, weights = graphs_of(model)
    ids = list(map(int, tokenizer.encode(text)))
    return PageContent(about, graphs, weights, checks_of(model, tokenizer, [ids]))


TRACE = """
const made = [];
for (const { parts, sentences, edits } of given) {
  const page = await open(parts);
  if (page.refused) made.push(page);
  else made.push(sentences.map((ids) => {
    const names = [...page.about.names, ...page.about.stream.map((name) => "lens." + name)];
    const values = page.computed(ids, names, edits ?? []);
    return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, told(value)]));
  }));
}
return made;
"""


def traced(cases: Sequence[Mapping[str, Any]], source: str | None = None) -> list[Any]:
    """For each case, the values of each sentence by name, or why the page refuses.

    Args:
        cases: `parts`, `sentences` of ids, and `edits`.
        source: the script, if not the page's own.
    """
    return [
        told if isinstance(told, dict) else [{name: as_tensor(each) for name, each in one.items()} for one in told]
        for told in in_page(TRACE, list(cases), source)
    ]


def as_tensor(told: Mapping[str, Any]) -> Tensor:
    """Float32 numbers from node."""
    import base64

    assert told["kind"] == "Float32Array"
    return torch.frombuffer(bytearray(base64.b64decode(told["data"])), dtype=torch.float32).reshape(told["shape"])


def expected(model: Transformer, ids: list[int]) -> dict[str, Tensor]:
    """PyTorch's values of a sentence by name, and the logits read off whatever is as wide as the stream."""
    values = model.trace(torch.tensor([ids]))
    width = model.config.d_model
    points = [name for name, value in values.items() if value.dim() == 3 and value.shape[-1] == width]
    return values | {f"lens.{name}": lens_logits(model, values[name]) for name in points}


def differing(found: dict[str, Tensor], truth: dict[str, Tensor]) -> list[str]:
    """Names whose numbers are not PyTorch's."""
    wrong = []
    for name, value in found.items():
        finite = truth[name].isfinite()
        same = value.shape == truth[name].shape and torch.equal(value[~finite], truth[name][~finite])
        largest = float(truth[name][finite].abs().max()) if finite.any() else 0.0
        near = same and bool(((value[finite] - truth[name][finite]).abs() <= CLOSE * largest).all())
        wrong += [] if near else [name]
    return wrong


@contextmanager
def chromium(**options: Any) -> Iterator[Any]:
    """A window of Chromium without a network; `options` are Playwright's for a context."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(**{"offline": True, **options})
        page: Any = context.new_page()
        page.faults = []
        page.on("console", lambda message: message.type == "error" and page.faults.append(message.text))
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        try:
            yield page
        finally:
            browser.close()


def opened(page: Any, file: Path, fragment: str = "") -> None:
    """Open a page anew, even where only the fragment differs, and wait for what it draws, or for its refusal."""
    page.goto("about:blank")
    page.goto(file.as_uri() + fragment)
    page.locator("main h1").wait_for()
