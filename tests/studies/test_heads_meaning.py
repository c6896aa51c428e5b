"""The studies of heads and of meaning: what is measured on a tiny run, and findings that follow from the numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.data import BPETokenizer, CorpusConfig, Part, prepare
from vitral.figures.grid import value_grid
from vitral.figures.sections import Table
from vitral.figures.style import svg_bytes
from vitral.inspection import BROAD, KINDS
from vitral.model import ModelConfig, Transformer
from vitral.runs import LoadedRun, RunFolder
from vitral.studies.catalogue.heads import HEADS
from vitral.studies.catalogue.meaning import MEANING
from vitral.studies.probes import Exhibit, Plot, Trained, probe_named
from vitral.studies.probes.meaning import language_of, languages, passage
from vitral.training import RunConfig


def trained(tiny: RunConfig, changes: Mapping[str, Any] | None = None, tokenizer: Any = None) -> Trained:
    """A fresh model in place of a trained one: what is measured does not ask whether it learned anything."""
    dataset = prepare(CorpusConfig.parse(tiny.corpus.plain() | ({} if tokenizer is None else {"tokenizer": tokenizer})))
    config = ModelConfig.parse(tiny.model.plain() | {"context_length": 24, "num_layers": 2} | dict(changes or {}))
    model = Transformer(config, dataset.tokenizer.vocab_size, seed=3).eval()
    run = LoadedRun(RunFolder(Path("no-folder-is-read")), model, dataset.tokenizer, {}, 0)
    return Trained("base", 1, run, dataset, "quick")


def shown(name: str, measured: Mapping[str, Mapping[int, Any]], heads: Mapping[str, int] | None = None) -> Exhibit:
    """What a probe shows of made-up arms."""
    heads = heads or dict.fromkeys(measured, 2)
    arms = [
        SimpleNamespace(
            arm=SimpleNamespace(name=arm, title=f"the arm {arm}"), config={"model": {"num_heads": heads[arm]}}
        )
        for arm in measured
    ]
    return probe_named(name).show(SimpleNamespace(arms=arms), measured)  # type: ignore[arg-type]


# ---------------------------------------------------------------- heads


def test_the_study_of_heads_keeps_the_width_and_takes_fewer_arms_when_quick() -> None:
    def heads(budget: Any) -> set[int]:
        return {arm.changes.get("model", {}).get("num_heads", 4) for arm in HEADS.at(budget).arms}

    assert heads("quick") == {1, 4, 16}
    assert heads("standard") == heads("full") == {1, 2, 4, 8, 16}
    assert all(set(arm.changes.get("model", {})) <= {"num_heads"} for arm in HEADS.arms)


def test_every_head_is_measured_and_measuring_again_gives_the_same(tiny: RunConfig) -> None:
    probe, run = probe_named("head-patterns"), trained(tiny)
    data = probe.measure(run)  # type: ignore[arg-type]
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data == probe.measure(run)  # type: ignore[arg-type]
    assert [len(layer["heads"]) for layer in data["layers"]] == [2, 2]
    head = data["layers"][0]["heads"][0]
    assert list(head["share"]) == list(KINDS)
    # A fresh model's attention is nearly uniform, and its text has no line break within a window.
    assert head["share"]["previous"] == pytest.approx(data["uniform"]["previous"], abs=0.02)
    assert head["share"]["line"] is None
    assert head["name"] == BROAD
    assert head["entropy"] == pytest.approx(1.0, abs=0.02)
    assert data["layers"][1]["overlap"] == pytest.approx(1.0, abs=0.02)


def test_without_attention_there_are_no_heads_to_show(tiny: RunConfig) -> None:
    data = probe_named("head-patterns").measure(trained(tiny, {"attention": "none"}))  # type: ignore[arg-type]
    assert data["layers"] == []
    assert shown("head-patterns", {"base": {1: data}}).findings == ()


def a_run(names: list[str], each: float, together: float, overlap: float | None) -> dict[str, Any]:
    """One layer of heads with these names, each worth the same."""
    worth = {"zero": {"increase": each, "error": 0.0}, "mean": {"increase": each / 2, "error": 0.0}}
    heads = [
        {"name": name, "share": dict.fromkeys(KINDS, 0.1), "distance": 2.0, "entropy": 0.5, **worth} for name in names
    ]
    whole = {way: {"increase": together, "error": 0.0} for way in ("zero", "mean")}
    uniform = dict.fromkeys(KINDS, 0.05)
    layer = {"overlap": overlap, "heads": heads, "all": whole}
    return {"loss": 2.0, "uniform": uniform, "uniform_distance": 9.0, "layers": [layer]}


def heads_shown(names: list[str], *, few: float, many: float, together: float) -> str:
    """The findings about an arm with one head and one with two, over three seeds."""
    measured = {
        "many": {seed: a_run(names, many + seed / 1000, together, 0.5 + seed / 100) for seed in (1, 2, 3)},
        "one": {seed: a_run(["previous"], few - seed / 1000, few, None) for seed in (1, 2, 3)},
    }
    exhibit = shown("head-patterns", measured, {"many": 2, "one": 1})
    return " ".join(f"{finding.holds} {finding.text}" for finding in exhibit.findings)


def test_findings_about_heads_follow_the_numbers() -> None:
    text = heads_shown(["previous", "line"], few=0.4, many=0.1, together=0.5)
    assert "True The arm many: 6 of 6 heads of all seeds are named after a kind: 3 line, 3 previous." in text
    assert "the loss increase without one head (nats per token) is 0.102, against 0.398 with the arm one: less" in text
    assert "cost 0.500 nats per token together and 0.204 added one by one: heads stand in for one another" in text


def test_other_numbers_give_other_findings() -> None:
    text = heads_shown(["previous", BROAD], few=0.1, many=0.4, together=0.5)
    assert "False The arm many: 3 of 6 heads of all seeds are named after a kind: 3 previous, 3 broad." in text
    assert "In no run do the heads see several things (kinds in a run: 1)" in text
    assert "is 0.402, against 0.098 with the arm one: more" in text
    assert "heads need one another" in text
    assert "no difference seen" in heads_shown(["near", "line"], few=0.104, many=0.1, together=0.204)


def test_one_seed_gives_no_verdict_about_differences() -> None:
    exhibit = shown("head-patterns", {"base": {1: a_run(["near", "line"], 0.1, 0.4, 0.5)}})
    assert [finding.holds for finding in exhibit.findings] == [True, None]
    assert "no interval, so no verdict" in exhibit.findings[1].text


def test_the_map_shows_every_head_and_uniform_attention() -> None:
    exhibit = shown("head-patterns", {"base": {1: a_run(["near", BROAD], 0.1, 0.4, 0.5)}})
    plots = [section for section in exhibit.sections if isinstance(section, Plot)]
    assert [plot.name for plot in plots] == ["heads-attend-to", "heads-overlap", "heads-knock-out"]
    svg = svg_bytes(plots[0].figure).decode()
    for words in ("block 0, head 0: near", "block 0, head 1: broad", "uniform attention", "share of attention weight"):
        assert words in svg


def test_a_grid_writes_its_numbers_and_refuses_what_cannot_be_read() -> None:
    figure = value_grid([[0.25, None], [0.5, 0.125]], ["a", "b"], ["x", "y"], "share", apart=[1], title="T")
    svg = svg_bytes(figure).decode()
    assert [words in svg for words in ("0.25", "0.50", "0.12", "nan")] == [True, True, True, False]
    assert svg_bytes(
        value_grid([[0.25, None], [0.5, 0.125]], ["a", "b"], ["x", "y"], "share", apart=[1], title="T")
    ) == (svg.encode())
    for values, rows in (([[0.1]], ["a", "b"]), ([[-0.1, 0.0]], ["a"]), ([[0.1, 0.2]] * 65, ["a"] * 65)):
        with pytest.raises(UsageError):
            value_grid(values, rows, ["x", "y"], "share")


# ---------------------------------------------------------------- meaning


def test_the_study_of_meaning_is_of_tokens_learned_from_its_text() -> None:
    sizes = [MEANING.budgets[budget].changes["corpus"]["tokenizer"]["vocab_size"] for budget in ("quick", "standard")]
    assert sizes == [2048, 4096]
    assert MEANING.arms[1].changes == {"model": {"attention": "none"}}


def test_the_language_is_told_by_its_small_words() -> None:
    assert language_of("The king and the queen of that land.") == "en"
    assert language_of("Os olhos que não viam uma luz com os seus.") == "pt"


@pytest.mark.parametrize("name", ["en", "pt"])
def test_every_language_has_words_sentences_and_pairs(name: str) -> None:
    from vitral.inspection import fill, place_of

    language, letters = languages()[name], BPETokenizer(())
    for sense in language.senses:
        for sentence in (*sense.first_sentences, *sense.second_sentences):
            tokens, place = place_of(letters, sentence, sense.word)
            # What tells the sense stands before the word, since nothing after it is seen.
            assert place > len(sense.word.encode()) + 8
            assert bytes(tokens[1 : place + 1].tolist()).decode().endswith(sense.word)
    pairs = [
        pair for kind in language.pairs for pair in fill(kind.templates, kind.subjects, kind.elements, kind.between)
    ]
    assert 60 <= len(pairs) <= 130
    for pair in pairs:
        one, other = pair.good.split(), pair.bad.split()
        assert sum(left != right for left, right in zip(one, other, strict=True)) == 1


def test_meaning_is_measured_as_plain_data_twice_the_same(tiny: RunConfig) -> None:
    probe, run = probe_named("meaning"), trained(tiny, {"context_length": 64}, {"name": "bpe", "vocab_size": 280})
    data = probe.measure(run)  # type: ignore[arg-type]
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data == probe.measure(run)  # type: ignore[arg-type]
    assert data["neighbours"] is None  # a text of ten words
    assert data["places"] == ["embed", "blocks.0.resid_post", "blocks.1.resid_post"]
    assert len(data["pairs"]) == 120
    # Most sentences are longer than half of the context, in tokens this short; those that fit start from one vector.
    for sense in data["senses"]:
        assert (sense["within"][0], sense["across"][0]) == (pytest.approx(1.0), pytest.approx(1.0))


def test_without_attention_both_senses_have_one_vector(tiny: RunConfig) -> None:
    changes = {"context_length": 128, "attention": "none"}
    data = probe_named("meaning").measure(trained(tiny, changes, {"name": "bpe", "vocab_size": 280}))  # type: ignore[arg-type]
    assert len(data["senses"]) == 8
    assert all(np.allclose([sense["within"], sense["across"]], 1.0) for sense in data["senses"])


def test_the_passage_before_a_sentence_ends_a_line() -> None:
    tokenizer = BPETokenizer(())
    tokens = np.frombuffer(b"a\nbcd\nef\n\ngh", dtype=np.uint8).astype(np.uint16)
    part = Part(tokens, np.array([[0, 2], [2, 12]]))
    assert bytes(passage(tokenizer, part, 4).tolist()) == b"bcd\n"
    assert bytes(passage(tokenizer, part, 6).tolist()) == b"cd\nef\n"
    assert torch.equal(passage(tokenizer, part, 11), torch.full((11,), 10))


def a_reading(correlation: float, apart: float, preferences: list[float | None]) -> dict[str, Any]:
    """A run with a listed word, four words of two senses that come apart after the block, and pairs of one kind."""
    near = [{"word": "queen", "cosine": 0.5}]
    return {
        "language": "en",
        "neighbours": {
            "words": 31,
            "correlation": correlation,
            "shuffled": [-0.02, 0.03],
            "of": [{"word": "king", "embedded": near, "counted": near}],
        },
        "places": ["embed", "blocks.0.resid_post"],
        "senses": [
            {
                "word": word,
                "first": "one",
                "second": "two",
                "within": [1.0, 0.9],
                "across": [1.0, 0.9 - apart - index / 500],
            }
            for index, word in enumerate(("bank", "light", "still", "lie"))
        ],
        "pairs": [
            {"kind": "agreement", "good": "Dogs run.", "bad": "Dogs runs.", "preference": each} for each in preferences
        ],
    }


def readings(*args: Any) -> str:
    """All findings about one arm over two seeds."""
    exhibit = shown("meaning", {"base": {seed: a_reading(*args) for seed in (1, 2)}})
    return " ".join(f"{finding.holds} {finding.text}" for finding in exhibit.findings)


def test_findings_about_meaning_follow_the_numbers() -> None:
    text = readings(0.4, 0.1, [1.0] * 19 + [-1.0])
    assert "True The arm base: words with like vectors stand in like contexts (rank correlation +0.400" in text
    assert "True The arm base: the blocks set two senses of a word apart (+0.103 from the embedding" in text
    assert (
        "True The arm base: the right sentence is the more probable in 95% (76% to 99%) of 20 pairs, above chance"
        in text
    )
    assert "moves it the right way for 95%" in text


def test_other_numbers_give_other_findings_about_meaning() -> None:
    text = readings(0.02, 0.0, [1.0, -1.2] * 10)
    assert "False The arm base: likeness of vectors is not told from chance" in text
    assert (
        "False The arm base: the right sentence is the more probable in 50% (30% to 70%) of 20 pairs, not told" in text
    )
    assert "moves it the right way for 0%" in text
    assert "nearer to one another" in readings(0.4, -0.1, [1.0, 1.0])
    assert "below chance: agreement (0%)" in readings(0.4, 0.1, [-1.0] * 20)
    rounding = readings(0.4, -0.003, [1e-6] * 20)
    assert "both senses of a word have the same vector" in rounding
    assert "in 50% (30% to 70%) of 20 pairs" in rounding


def test_what_cannot_be_scored_is_left_out() -> None:
    exhibit = shown("meaning", {"base": {1: a_reading(0.4, 0.1, [1.0, 1.0, None, 1.0])}})
    assert "of 3 pairs" in exhibit.findings[2].text
    assert "100% (21% to 100%) of the subjects" in exhibit.findings[2].text
    half = shown("meaning", {"base": {1: a_reading(0.4, 0.1, [1.0, None])}})
    assert "for none of the subjects" in half.findings[2].text
    nothing = a_reading(0.4, 0.1, [None, None]) | {"neighbours": None, "senses": []}
    assert shown("meaning", {"base": {1: nothing}}).findings == ()


def test_tables_of_meaning_have_examples() -> None:
    exhibit = shown("meaning", {"base": {1: a_reading(0.4, 0.1, [1.0, 1.0])}})
    tables = [section for section in exhibit.sections if isinstance(section, Table)]
    assert tables[0].rows == (("king", "queen 0.50", "queen 0.50"),)
    assert tables[2].rows[0] == ("bank", "one / two", "0.900", "0.800", "+0.100")
    assert tables[3].rows[0][:3] == ("agreement", "Dogs run. / Dogs runs.", "2")
    assert [section.name for section in exhibit.sections if isinstance(section, Plot)] == [
        "senses-by-layer",
        "senses-apart",
    ]
