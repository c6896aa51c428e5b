"""A page of an encoder-decoder: what it computes of any source and any answer is PyTorch's."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import as_tensor, needs_chromium
from pages import chromium, differing, in_page, serving
from variants import BASE

from vitral.data.answers import ANSWER, END
from vitral.inspection.edits import editing_tap, edits_of
from vitral.inspection.lens import lens_logits
from vitral.model import Transformer
from vitral.page.content import page_content
from vitral.page.document import page_document, parts_of
from vitral.runs import LoadedRun, RunConfig, load_run
from vitral.training import train

PAIRS = [("abcdefg", "gfedcba"), ("hhab", "bahh"), ("fade", "edaf"), ("bead", "daeb")] * 8
KINDS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm": "post", "positions": "sinusoidal", "encoder_layers": 1},
    "rotary": {"d_model": 12, "num_heads": 6, "num_kv_heads": 2, "positions": "rotary"},
}
Trained = Callable[[str], LoadedRun]
OFF = [{"at": "blocks.1.cross.z", "heads": [1], "positions": "all", "do": "zero"}]


@pytest.fixture
def trained(tmp_path: Path, own_cache: None) -> Trained:
    """`trained("pre")`: a run of one step on pairs, with large weights."""

    def get(kind: str) -> LoadedRun:
        lines = [json.dumps({"source": source, "target": target}) for source, target in PAIRS]
        (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
        model = BASE | {"shape": "encoder-decoder", "source_length": 7, "initialisation": "wide"} | KINDS[kind]
        config = {
            "corpus": {"source": str(tmp_path / "pairs.jsonl"), "records": "pairs"},
            "model": model,
            "training": {"steps": 1, "batch_size": 4, "device": "cpu"},
        }
        train(RunConfig.parse(config), tmp_path / "run")
        return load_run(tmp_path / "run")

    return get


def truth(model: Transformer, source: list[int], ids: list[int], edits: Any = ()) -> dict[str, torch.Tensor]:
    given = torch.tensor([source])
    tap = editing_tap(model, len(ids), edits_of(edits), None, given) if edits else None
    values = model.trace(torch.tensor([ids]), source=given, tap=tap)
    return values | {f"lens.{name}": lens_logits(model, value) for name, value in values.items() if _is_stream(name)}


def _is_stream(name: str) -> bool:
    return re.fullmatch(r"(?!encoder\.).*(embed|resid_(mid|cross|post)|\.out)", name) is not None


TOLD = """
const carried = await page.Carried.open(given.parts);
const { names: own, source, stream } = carried.about;
const names = [...own, ...source.names, ...stream.map((name) => "lens." + name)];
const found = given.cases.map(([source, ids, edits]) => Object.fromEntries(
  Object.entries(carried.reads(source).computed(ids, names, edits)).map(([name, value]) => [name, told(value)])));
const [[read, ids]] = given.cases;
const drawn = [];
const sampling = { temperature: 0, top_k: null, top_p: null, min_p: null };
const draws = { sampling, numbers: Array(6).fill(0.5), prompt: ids.length, edits: [] };
for await (const { id } of carried.reads(read).next(ids, draws)) drawn.push(id);
const [encoded, alone] = [carried.encode("bad").ids, carried.encode("bad", true).ids];
return { found, drawn, decoded: carried.decode(ids), encoded, alone };
"""


@pytest.mark.merge
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_computes_encoder_and_decoder_as_pytorch(kind: str, trained: Trained) -> None:
    run = trained(kind)
    model, tokenizer = run.model, run.tokenizer
    opens = tokenizer.declared[ANSWER]
    cases: Any = [
        ([2, 3, 4], [opens, 4, 3], []),
        ([1], [opens], []),
        ([8, 1, 1, 8, 2, 5, 6], [opens, *range(1, 9)], OFF),
    ]
    content = page_content(run, "both", with_passages=True)
    assert {*content.about["passages"]} <= {target for _, target in PAIRS}  # whole answers
    (told,) = in_page(TOLD, [{"parts": parts_of(content), "cases": cases}])
    for (source, ids, edits), values in zip(cases, told["found"], strict=True):
        found = {name: as_tensor(each) for name, each in values.items()}
        expected = truth(model, source, ids, edits)
        assert set(model.activation_names) <= found.keys()
        assert differing(found, expected) == []
    assert (told["decoded"], told["encoded"]) == (tokenizer.decode([4, 3]), [opens, *told["alone"]])
    assert told["drawn"] == greedy(run, [2, 3, 4], [opens, 4, 3], 9)[3:]


def greedy(run: LoadedRun, source: list[int], ids: list[int], length: int) -> list[int]:
    """The ids, and the likeliest tokens after them, so many together."""
    while len(ids) < length:
        logits = truth(run.model, source, ids)["logits"][0, -1].clone()
        logits[list(run.tokenizer.specials)] = -torch.inf
        ids = [*ids, int(logits.argmax())]
    return ids


@contextmanager
def _page(run: LoadedRun, *, served: bool) -> Iterator[str]:
    if served:
        with serving(run.folder.path) as address:
            yield address
    else:
        file = run.folder.path.with_name("page.html")
        file.write_text(page_document(page_content(run, "both")), encoding="utf-8")
        yield file.as_uri() + "#"


VALUES = """() => {
  const { values } = vitralPage.shown.value;
  const told = (data) => Array.from(data, (each) => (Number.isFinite(each) ? each : String(each)));
  const named = Object.entries(values).map(([name, { shape, data }]) => [name, { shape, data: told(data) }]);
  return Object.fromEntries(named);
}"""


@pytest.mark.merge
@needs_chromium
@pytest.mark.parametrize("served", [False, True])
def test_typing_in_either_sentence_recomputes_both(served: bool, trained: Trained) -> None:
    run = trained("pre")
    model, encode = run.model, lambda text: run.tokenizer.encode(text).tolist()
    with _page(run, served=served) as address, chromium(offline=False) as window:
        window.goto(f"{address}&l=en")
        source, ids = encode("fade"), encode(f"{ANSWER}eda")
        window.locator(".source textarea").fill("fade")
        written = run.tokenizer.decode(greedy(run, source, ids[:1], model.config.context_length)[1:])
        own = f"() => vitralPage.text.value === {written.partition(END)[0]!r}"
        window.wait_for_function(f"{own} && /source=fade(?!.*text=)/.test(location.hash)")
        window.locator(".sentence:not(.source) textarea").fill("eda")
        window.wait_for_function("() => location.hash.includes('text=eda')")
        window.evaluate("() => void (location.hash = 'l=en&source=fade')")
        window.wait_for_function(own)
        window.locator(".sentence:not(.source) textarea").fill("eda")
        window.wait_for_function(
            "([ids, source]) => { const now = vitralPage.shown.value;"
            " return String(now?.ids) === ids && String(now.from.given) === source; }",
            arg=[",".join(map(str, ids)), ",".join(map(str, source))],
        )
        told = window.evaluate(VALUES)
        found, expected = {name: as_tensor(each) for name, each in told.items()}, truth(model, source, ids)
        assert set(model.activation_names) <= found.keys()
        assert differing({name: value for name, value in found.items() if name in expected}, expected) == []
        assert window.locator("#figure-alignment .mark").count() == 2
        assert window.faults == []
