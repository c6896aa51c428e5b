"""Pages of small models: their parts, their script in node, the page in Chromium."""

import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from browser import CHROMIUM, as_tensor, in_node
from torch import Tensor
from variants import VARIANTS

from vitral.data import Tokenizer
from vitral.inspection.lens import lens_logits
from vitral.model import Transformer
from vitral.page.content import KINDS, PageContent, about_run, checks_of, graphs_of
from vitral.page.document import asset
from vitral.runs.config import Mixed

Carried = Callable[[str], tuple[Transformer, PageContent]]
"""The fixture `carried` of tests/page: a model of a variant, and what its page carries."""
SECRET = "a-secret-token"
SERVE = (
    "import sys; from pathlib import Path; from vitral.page.server.serving import serve; "
    "serve([Path(each) for each in sys.argv[3:]], port=int(sys.argv[1]), token=sys.argv[2], browser=False, "
    "announce=lambda address: print(address, flush=True))"
)
CLOSE = 1e-4
"""How near a page comes to PyTorch, relative to the largest number of a value."""


def of_variants(*names: str, without: Sequence[str] = ()) -> list[Any]:
    """Every variant as a parameter: these when changes are merged, the others in a night."""
    night, merged = pytest.mark.full, pytest.mark.merge
    kept = (name for name in VARIANTS if name not in without)
    return [pytest.param(name, marks=merged if name in names else night) for name in kept]


def in_page(body: str, cases: Sequence[Any], source: str | None = None) -> list[Any]:
    """The results of the body of a JavaScript function of `given`, each case, and of `page`, the script."""
    return in_node(f"const page = vitralPage; {{ {body} }}", cases, source=source or asset("page.js"))


def run_to_show(model: Transformer, tokenizer: Tokenizer, objective: Any = "next-token") -> Any:
    """What a page asks of a run: a model that was trained with an objective, or names the labels "0", "1" …"""
    labels = {"labels": [str(label) for label in range(model.config.num_labels or 0)]}
    config = SimpleNamespace(training=SimpleNamespace(objective=objective))
    sealed = SimpleNamespace(config=config, imported=None, document=lambda name: {"corpus": labels}[name])
    return SimpleNamespace(model=model, tokenizer=tokenizer, step=1, sealed=sealed)


def content_of(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    name: str = "a model",
    source: str = "",
    objective: Any = "next-token",
) -> PageContent:
    """What a page of a model carries, with this sentence; an encoder reads `source`."""
    run = run_to_show(model, tokenizer, objective)
    about = about_run(run, name) | {"passages": [text], "commands": {}} | ({"sources": [source]} if source else {})
    sentences, sources = ([tokenizer.encode(each).tolist()] if each else [] for each in (text, source))
    both = isinstance(objective, Mixed)
    graphs, checks = graphs_of(model, both=both), checks_of(model, tokenizer, sentences, sources, both=both)
    return PageContent(about, *graphs, checks)


TRACE = """
let carried;
try {
  carried = await page.Carried.open(given.parts);
} catch (error) {
  return { refused: error.reason ?? String(error.stack) };
}
const names = [...carried.about.names, ...carried.about.stream.map((name) => "lens." + name)];
return given.sentences.map((ids) => Object.fromEntries(
  Object.entries(carried.computed(ids, names, [])).map(([name, value]) => [name, told(value)])));
"""


def traced(cases: Sequence[Mapping[str, Any]], source: str | None = None) -> list[Any]:
    """For each case, the values of each sentence by name, or why the page refuses.

    Args:
        cases: `parts`, and `sentences` of ids.
        source: the script, if not the page's own.
    """
    return [
        told if isinstance(told, dict) else [{name: as_tensor(each) for name, each in one.items()} for one in told]
        for told in in_page(TRACE, cases, source)
    ]


def weights_of(content: PageContent) -> dict[str, Tensor]:
    """The numbers that a page carries, by name."""
    kinds = {kind: dtype for dtype, kind in KINDS.items()}
    numbers = bytearray(content.weights)

    def one(told: Mapping[str, Any]) -> Tensor:
        dtype, shape = kinds[told["kind"]], told["shape"]
        return torch.frombuffer(numbers, dtype=dtype, count=math.prod(shape), offset=told["start"]).view(shape)

    return {told["name"]: one(told) for told in content.graphs["constants"]}


def expected(model: Transformer, ids: list[int]) -> dict[str, Tensor]:
    """PyTorch's values of a sentence by name, and the logits read off whatever is as wide as the stream."""
    values = model.trace(torch.tensor([ids]))
    width = model.config.d_model
    points = [name for name, value in values.items() if value.dim() == 3 and value.shape[-1] == width]
    return values | {f"lens.{name}": lens_logits(model, values[name]) for name in points}


def differing(found: dict[str, Tensor], truth: dict[str, Tensor]) -> list[str]:
    """Names whose numbers are not PyTorch's."""

    def near(one: Tensor, other: Tensor) -> bool:
        largest = float(other.nan_to_num(0, 0, 0).abs().max())
        return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=CLOSE * largest)

    return [name for name, value in found.items() if not near(value.double(), truth[name].double())]


def mulberry32(seed: int, turn: int) -> float:
    """Tommy Ettinger's generator, as it is written in C: its number after so many others."""
    mask = 2**32 - 1
    z = (seed + (turn + 1) * 0x6D2B79F5) & mask
    z = ((z ^ (z >> 15)) * (z | 1)) & mask
    z ^= (z + ((z ^ (z >> 7)) * (z | 61) & mask)) & mask
    return (z ^ (z >> 14)) / 2**32


@contextmanager
def chromium(**options: Any) -> Iterator[Any]:
    """A window of Chromium without a network; `options` are Playwright's for a context."""
    with pytest.importorskip("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page: Any = browser.new_context(**{"offline": True, **options}).new_page()
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def serving(*runs: Path, port: int | None = None, token: str = SECRET) -> Iterator[str]:
    """The address of a server of runs."""
    command = [sys.executable, "-c", SERVE, str(port or free_port()), token, *map(str, runs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"VITRAL_LANG": "en"})
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()
