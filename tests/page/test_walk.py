"""A random walk over a page: whatever was done, it is as a page opened anew at its address, and says what is so.

Of a night: VITRAL_WALK="seeds=10 acts=1000" pytest -m "" tests/page/test_walk.py. A walk that fails tells its seed, the
last address that was good, and the fewest acts found that fail from there.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import needs_chromium
from foreign import of_form, run_of
from pages import chromium, content_of, serving
from variants import BASE, TEXT, TOKENIZER, enlarged, made

from vitral.data import Tokenizer, bpe_tokenizer, byte_tokenizer
from vitral.data.engines import learn_merges
from vitral.model import ModelConfig, Transformer
from vitral.page.content import page_content, page_of
from vitral.page.document import page_document
from vitral.runs import LoadedRun
from vitral.runs.config import Masked, Mixed

pytestmark = [pytest.mark.merge, needs_chromium]
ASKED = dict(each.split("=") for each in os.environ.get("VITRAL_WALK", "").split())
SEEDS, ACTS, EVERY = (int(ASKED.get(name, default)) for name, default in (("seeds", 1), ("acts", 100), ("every", 5)))
SCRIPT = (Path(__file__).parent / "walk.js").read_text(encoding="utf-8")
Act = tuple[str, str, Any]


class Walker:
    """A page, and another one that is opened anew at its address.

    Args:
        page: the page that is walked on.
        anew: another page of the same window.
        address: of the document, without a fragment.
        token: the part of the fragment that opens a server's page.
    """

    def __init__(self, page: Any, anew: Any, address: str, token: str = "") -> None:
        self.page, self.anew, self.address, self.token = page, anew, address, token

    def goto(self, page: Any, fragment: str = "") -> None:
        page.goto("about:blank")
        page.goto(f"{self.address}#{'&'.join(filter(None, (self.token, fragment)))}")
        page.locator("header .name, .whole").first.wait_for(state="attached")  # a figure alone has no header

    def begin(self, fragment: str) -> None:
        self.goto(self.page, fragment)
        self.page.faults.clear()

    def do(self, act: Act, pause: float) -> None:
        kind, _, given = act
        if kind == "resize":
            for each in (self.page, self.anew):
                each.set_viewport_size({"width": given, "height": 800})
        else:
            found = self.page.evaluate("([kind, target, given]) => walk.act(kind, target, given)", act)
            if kind == "point" and found:
                self.page.mouse.click(*found)
            elif kind == "key" and found:
                self.page.keyboard.press(given)
        self.page.wait_for_timeout(pause)

    def waited(self, ask: Callable[[], list[str]]) -> list[str]:
        """Ask until the answer is empty; the answer after twenty seconds."""
        told = ask()
        for _ in range(200):
            if not told:
                break
            self.page.wait_for_timeout(100)
            told = ask()
        return told

    def fault(self) -> str:
        """What is wrong now; empty if nothing is."""
        for each in (self.page, self.anew):
            each.mouse.move(0, 0)
        self.page.evaluate("walk.still()")
        told = self.waited(lambda: self.page.evaluate("walk.restless()"))
        self.goto(self.anew, self.page.evaluate("location.hash.slice(1)"))
        told += self.waited(lambda: self.anew.evaluate("walk.restless()"))
        told += self.waited(lambda: self.anew.evaluate("walk.differences", self.page.evaluate("walk.said()")))
        refused = "status of 422"  # the server's refusal of an edit, which the page says
        told += [*self.page.evaluate("walk.broken()"), *(each for each in self.page.faults if refused not in each)]
        return "\n".join(told)

    def done(self, fragment: str, acts: Sequence[Act]) -> str:
        """What is wrong after acts on a page that is opened at an address."""
        self.begin(fragment)
        for act in acts:
            self.do(act, 60)
        return self.fault()

    def walk(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        self.begin("")
        good, since = "", list[Act]()
        for step in range(count):
            since.append(self.page.evaluate("(shares) => walk.chosen(...shares)", [rng.random() for _ in range(3)]))
            self.do(since[-1], rng.choice([0, 0, 30, 300]))
            if (step + 1) % EVERY and step + 1 < count:
                continue
            if told := self.fault():
                pytest.fail(f"seed {seed}, act {step}, at #{good}\n{self.least(good, since)}\n{told}", pytrace=False)
            good, since = self.page.evaluate("location.hash.slice(1)"), []

    def least(self, fragment: str, acts: list[Act]) -> str:
        """The fewest acts found that fail on a page opened at the last address that was good."""
        if not self.done(fragment, acts):
            return f"{json.dumps(acts)}, but not on a page opened anew"
        for act in acts[::-1]:
            fewer = [each for each in acts if each is not act]
            if self.done(fragment, fewer):
                acts = fewer
        return json.dumps([fragment, acts])


def models() -> Iterator[tuple[str, Transformer, Tokenizer]]:
    """Models with attention and without, rotary with shared keys, one of GPT-2's form, one of byte pairs."""
    yield "full", made("pre"), TOKENIZER
    yield "none", made("no attention"), TOKENIZER
    shared = {"d_model": 12, "num_heads": 6, "num_kv_heads": 2, "positions": "rotary", "num_layers": 1}
    yield "shared", made(shared), TOKENIZER
    yield "imported", of_form("gpt2"), byte_tokenizer()
    pairs = bpe_tokenizer(learn_merges([TEXT * 9, "abcabc habha " * 9], 262))
    yield "pairs", enlarged(Transformer(ModelConfig.parse(BASE), pairs.vocab_size, seed=5).eval()), pairs


Filmed = Callable[[str], LoadedRun]


@pytest.fixture
def window() -> Iterator[Any]:
    with chromium(viewport={"width": 1280, "height": 800}, reduced_motion="reduce", offline=False) as page:
        page.context.add_init_script(SCRIPT)
        page.anew = page.context.new_page()
        page.anew.on("console", lambda told: told.type == "error" and page.faults.append(f"anew: {told.text}"))
        page.anew.on("pageerror", lambda error: page.faults.append(f"anew: {error}"))
        yield page


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_carried_page_is_as_if_opened_anew(seed: int, window: Any, filmed: Filmed) -> None:
    contents = [content_of(model, tokenizer, TEXT, name) for name, model, tokenizer in models()]
    runs = {"film": filmed("pre"), "beside": filmed("no attention")}
    both = made({"shape": "encoder-decoder", "source_length": 9, "encoder_layers": 1})
    contents += [page_content(runs["film"], "film"), page_of(runs), content_of(both, TOKENIZER, TEXT, "both", "bach")]
    for name, model, objective in (("encoder", made({"shape": "encoder"}), Masked()), ("mixed", made("pre"), Mixed())):
        contents.append(content_of(model, TOKENIZER, TEXT, name, objective=objective))
    for place, content in enumerate(contents):
        address = f"https://page-{place}.test/"  # a file has no list of its own addresses to go back to
        given = {"body": page_document(content), "content_type": "text/html"}
        window.context.route(f"{address}**", lambda route, _, given=given: route.fulfill(**given))
        Walker(window, window.anew, address).walk(10 * seed + place, ACTS // 5)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_served_page_of_several_runs_is_as_if_opened_anew(
    seed: int, window: Any, filmed: Filmed, tmp_path: Path
) -> None:
    for name, model, tokenizer in models():
        run_of(model, tmp_path / name, tokenizer)
    with serving(*(tmp_path / name for name, _, _ in models()), filmed("pre").folder.path) as told:
        address, _, token = told.partition("#")
        Walker(window, window.anew, address, token).walk(seed, ACTS)
