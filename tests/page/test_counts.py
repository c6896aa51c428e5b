"""What a page says of a run's own text, and of a run without one; its counts."""

import base64
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser import needs_node
from pages import in_page

from vitral import Run, bundle, train
from vitral.core.errors import UsageError
from vitral.data import Split, char_tokenizer
from vitral.evaluation.ngrams import WittenBell
from vitral.model import ModelConfig, Transformer
from vitral.page import content, of_text
from vitral.page.of_text import carried_counts
from vitral.page.passages import HANDFUL, LONGEST, SHORTEST, passages
from vitral.runs import load_run

RATE = """
const ngrams = await page.Ngrams.open(given.counts);
return {
  rated: given.sentences.map((ids) => ngrams.probabilities(ids)),
  following: given.sentences.map((ids) => Array.from(ngrams.following(ids))),
  guesses: given.sentences.map((ids) => ngrams.guesses(ids, 3).map(({ id }) => id)),
};
"""
VOCABULARY = 211
"""Token and context numbers of one and of two groups of seven bits."""


def drawn_split(seed: int, *lengths: int) -> Split:
    """Segments of a Markov chain, so that contexts recur; the last token of the vocabulary never occurs."""
    generator = np.random.default_rng(seed)
    tokens = np.minimum(generator.geometric(0.05, sum(lengths)) - 1, VOCABULARY - 2)
    tokens[1::2] = tokens[::2][: len(tokens[1::2])] // 3
    ends = np.cumsum(lengths)
    return Split(tokens.astype(np.uint16), np.stack([ends - lengths, ends], axis=1))


def sentences(seed: int) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    seen = drawn_split(seed, 400).tokens.tolist()
    return [seen[:30], seen[31:33], [seen[0]], [], generator.integers(0, VOCABULARY, 40).tolist(), [VOCABULARY - 1] * 5]


def witten_bell(train: Split, order: int, ids: Sequence[int]) -> list[float]:
    """Of every token but the first."""
    if len(ids) < 2:
        return []
    text = Split(np.array(ids, dtype=np.uint16), np.array([[0, len(ids)]]))
    return np.exp(-WittenBell(train, VOCABULARY, order).nats(text)[-1]).tolist()


def made(train: Split, test: Split) -> tuple[dict[str, Any], WittenBell]:
    found = carried_counts(train, test, VOCABULARY)
    assert found is not None
    return found


@pytest.mark.merge
@needs_node
@pytest.mark.parametrize("most", [1, 2, 6])
def test_probabilities_are_those_of_the_baselines(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_text, "MOST_ORDER", most)
    train = drawn_split(3, 2000, 1, 700, 30)
    carried, model = made(train, drawn_split(4, 50))
    assert (carried["order"], carried["counted"]) == (most, 2731)
    given = sentences(5)
    told = in_page(RATE, [{"counts": json.loads(json.dumps(carried)), "sentences": given}])[0]
    for ids, rated, following, guesses in zip(given, told["rated"], told["following"], told["guesses"], strict=True):
        assert rated[1:] == pytest.approx(witten_bell(train, most, ids), rel=1e-12, abs=0)
        assert following[0] > 0
        assert sum(following) == pytest.approx(1, abs=1e-12)
        each = [witten_bell(train, most, [*ids, token])[-1] for token in range(0, VOCABULARY, 13)] if ids else []
        assert following[::13][: len(each)] == pytest.approx(each, rel=1e-12, abs=0)
        assert following == pytest.approx(model.following(np.array(ids, dtype=np.int64)).tolist(), rel=1e-12, abs=0)
        assert guesses == np.argsort(-np.array(following), kind="stable")[:3].tolist()


def numbers(data: str) -> list[int]:
    """Whole numbers in groups of seven bits, the lowest first; the eighth bit says that another group follows."""
    found, value, shift = [], 0, 0
    for byte in zlib.decompress(base64.b64decode(data)):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def test_the_carried_counts_are_those_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_text, "MOST_ORDER", 1)
    train = drawn_split(3, 2000, 1, 700, 30)
    occurrences = np.bincount(train.tokens)
    kinds, *rest = numbers(made(train, drawn_split(4, 50))[0]["data"])
    steps, less = rest[:kinds], rest[kinds:]
    assert np.cumsum(steps).tolist() == np.flatnonzero(occurrences).tolist()
    assert [each + 1 for each in less] == occurrences[occurrences > 0].tolist()


def test_the_highest_order_that_fits_is_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = drawn_split(6, 5000), drawn_split(7, 50)
    sizes = []
    for order in (1, 2, 3):
        monkeypatch.setattr(of_text, "MOST_ORDER", order)
        sizes.append(len(made(train, test)[0]["data"]))
    monkeypatch.setattr(of_text, "MOST_ORDER", 6)
    assert sizes == sorted(sizes)
    for order, size in enumerate(sizes, start=1):
        monkeypatch.setattr(of_text, "MOST_LETTERS", size)
        assert made(train, test)[0]["order"] == order
    monkeypatch.setattr(of_text, "MOST_LETTERS", sizes[0] - 1)
    assert carried_counts(train, test, VOCABULARY) is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run on the bundled text, stopped before it is good."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    model = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32, "context_length": 48}
    train("shakespeare", folder, corpus="sample", model=model, training={"steps": 20, "evaluate_every": 20})
    return folder


def test_a_page_opens_on_contested_passages_of_the_test_split(run: Path) -> None:
    loaded = load_run(run)
    said = of_text.of_text(loaded)
    test = Run(run).dataset().splits["test"]
    held_out = loaded.tokenizer.decode(test.tokens)
    assert 1 <= len(said["passages"]) <= HANDFUL
    assert len(said["openings"]) == len(said["passages"]) == len(set(said["passages"]))
    found = of_text.carried_counts(Run(run).dataset().splits["train"], test, loaded.tokenizer.vocab_size)
    assert found is not None
    for text, opening in zip(said["passages"], said["openings"], strict=True):
        ids = loaded.tokenizer.encode(text)
        assert text in held_out
        assert SHORTEST <= len(text) <= LONGEST
        assert opening["position"] == len(ids) - 1
        traced = loaded.model.trace(torch.from_numpy(ids)[None])
        best = traced["logits"][0, -1].argsort(descending=True)[:2].tolist()
        assert best[0] != found[1].following(ids).argmax()
        following = held_out[held_out.index(text) + len(text)]
        assert held_out.count(text) > 1 or loaded.tokenizer.encode(following)[0] in best
        rows = torch.stack([traced[f"blocks.{layer}.attn.weights"][0, :, -1] for layer in range(2)])
        assert rows[opening["block"], opening["head"], 1:-2].max() == rows[..., 1:-2].max()
    assert said == of_text.of_text(load_run(run))


def test_a_page_of_a_private_text_has_no_passage_and_no_count(run: Path, tmp_path: Path) -> None:
    text = "".join(f"Line {n} is nobody's business but mine, {n * n} times.\n" for n in range(400))
    (tmp_path / "mine.txt").write_text(text, encoding="utf-8")
    model = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 16, "context_length": 48}
    private = train(
        "shakespeare", tmp_path / "r", corpus=tmp_path / "mine.txt", model=model, training={"steps": 9}
    ).path
    assert [of_text.is_private(load_run(one)) for one in (run, private)] == [False, True]
    both = {"source": "sample", "also": [str(tmp_path / "mine.txt")]}
    mixed = train("shakespeare", tmp_path / "m", corpus=both, model=model, training={"steps": 2}).path
    assert of_text.is_private(load_run(mixed))
    made = [bundle(private, tmp_path / f"{given}.html", with_passages=given) for given in (False, True)]
    assert [(one.passages > 0, one.order > 0) for one in made] == [(False, False), (True, True)]
    page = made[0].path.read_text(encoding="utf-8")
    about = json.loads(page.partition('id="about">')[2].partition("</script>")[0])
    assert about["private"]
    assert "counts" not in about
    assert not any(line in page for line in text.splitlines())
    assert about["passages"] == of_text.of_text(load_run(private), with_passages=False)["passages"]


def test_what_the_page_says_of_the_losses_is_what_the_run_measured(run: Path) -> None:
    said = of_text.of_text(load_run(run), ablated=True)
    measured = Run(run)
    assert {each["order"]: each["loss"] for each in said["baselines"]} == measured.ngram_baselines().orders
    assert said["text"] == {
        "name": "sample",
        "characters": measured.dataset().text.characters,
        "sha256": measured.dataset().text.sha256,
        "licence": {"sentence": "CC0 1.0"},
    }
    assert [len(layer) for layer in said["kinds"]] == [2, 2]
    parts = said["ablations"]["parts"]
    assert [part["at"] for part in parts if len(part["at"]) == 2] == [
        [f"blocks.{layer}.attn.out", f"blocks.{layer}.mlp.out"] for layer in range(2)
    ]
    assert [part["head"] for part in parts if "head" in part] == [0, 1, 0, 1]
    assert all(part["low"] < part["increase"] < part["high"] for part in parts)
    assert "ablations" not in of_text.of_text(load_run(run), ablated=False)


def test_a_run_whose_text_is_gone_opens_all_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise UsageError("gone")

    monkeypatch.setattr("vitral.runs.SealedRun.dataset", gone)
    said = of_text.of_text(load_run(run))
    assert said["text"] == {"missing": "elsewhere"}
    assert said["passages"]
    assert not said.keys() & {"counts", "kinds", "ablations", "baselines"}


@pytest.mark.parametrize(
    "changes",
    [{}, {"attention": "none"}, {"attention": {"mask": "bidirectional"}}, {"num_layers": 0}, {"context_length": 1}],
    ids=str,
)
@pytest.mark.parametrize("alphabet", ["\n abcdehmnorstuvx,.TB", "\u4e00\u4e8c", "\n", " "], ids=ascii)
def test_a_page_is_never_empty(changes: dict[str, object], alphabet: str) -> None:
    tokenizer = char_tokenizer(alphabet)
    base = {"context_length": 12, "d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 8}
    model = Transformer(ModelConfig.parse(base | changes), tokenizer.vocab_size).eval()
    text = Split(np.arange(1, 1 + 60, dtype=np.uint8) % len(alphabet) + 1, np.array([[0, 60]]))
    for test in (None, text, Split(text.tokens[:1], np.array([[0, 1]]))):
        found = passages(model, tokenizer, test)
        assert found
        for each in found:
            ids = tokenizer.encode(each.text)
            assert 1 <= len(ids) <= max(LONGEST, model.config.context_length)
            assert 0 <= each.position < len(ids)
            assert 0 <= each.block < max(1, model.config.num_layers)
            assert 0 <= each.head < model.config.num_heads


def test_what_cannot_be_written_is_refused_before_anything_is_computed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there.html"
    there.write_text("mine", encoding="utf-8")
    monkeypatch.setattr("vitral.page.page_of", None)
    for out, reason in ((there, "exists already"), (there / "page.html", "cannot be written")):
        with pytest.raises(Exception, match=reason) as refused:
            bundle(run, out)
        assert type(refused.value).__module__ == "vitral.core.errors"
    assert there.read_text(encoding="utf-8") == "mine"


def test_a_page_that_no_browser_opens_is_refused_with_its_size(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "MOST_BYTES", 10_000)
    with pytest.raises(UsageError, match=r"MB.*vitral open"):
        bundle(run, tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def test_a_text_that_is_not_the_run_s_is_refused_unless_it_may_be_another_s(run: Path, tmp_path: Path) -> None:
    from vitral.page.server.runs import Runs

    wrong = tmp_path / "wrong.txt"
    wrong.write_text("nothing of it\n" * 200, encoding="utf-8")
    with pytest.raises(UsageError):
        of_text.of_text(load_run(run), str(wrong), whole=False)
    with pytest.raises(UsageError):
        Runs([run], "best", str(wrong)).about({})
    beside = json.loads(Runs([run, run], "best", str(wrong)).about({"run": 1}))
    assert beside["passages"] == of_text.of_text(load_run(run), whole=False)["passages"]
    assert "baselines" in beside
