"""The studies of heads and of meaning: what is measured on a tiny run, and findings that follow from the numbers."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.data import BPETokenizer, CorpusConfig, Split, prepare
from vitral.figures.sections import Table
from vitral.model import ModelConfig, Transformer
from vitral.runs import LoadedRun, RunFolder
from vitral.studies import study_named
from vitral.studies.probes import Exhibit, Plot, Trained, probe_named
from vitral.studies.probes.meaning import language_of, languages, passage
from vitral.training import RunConfig

MEANING = study_named("meaning")


def trained(tiny: RunConfig, changes: Mapping[str, Any] | None = None, tokenizer: Any = None) -> Trained:
    """A fresh model in place of a trained one: what is measured does not ask whether it learned anything."""
    dataset = prepare(CorpusConfig.parse(tiny.corpus.plain() | ({} if tokenizer is None else {"tokenizer": tokenizer})))
    config = ModelConfig.parse(tiny.model.plain() | {"context_length": 24, "num_layers": 2} | dict(changes or {}))
    model = Transformer(config, dataset.tokenizer.vocab_size, seed=3).eval()
    told = {"training": {"objective": "next-token", "allow_leak": False}}
    run = LoadedRun(RunFolder(Path("no-folder-is-read")), model, dataset.tokenizer, told, 0)
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


@pytest.mark.parametrize("name", ["meaning"])
@pytest.mark.parametrize("training", [{"objective": {"name": "masked"}, "allow_leak": False}, {"allow_leak": True}])
def test_runs_that_are_not_of_next_tokens_are_refused(name: str, training: Any, tiny: RunConfig) -> None:
    from dataclasses import replace

    run = trained(tiny)
    run = replace(run, run=replace(run.run, config={"training": training}))
    with pytest.raises(UsageError, match="next token"):
        probe_named(name).measure(run)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["meaning", "uses", "copying", "cost-by-length"])
def test_nothing_measured_shows_nothing(name: str) -> None:
    for nothing in ({}, {"base": {}}):
        arms = [SimpleNamespace(arm=SimpleNamespace(name="base", title="the base"), config={})]
        found = probe_named(name).show(SimpleNamespace(arms=arms), nothing)  # type: ignore[arg-type]
        assert (found.sections, found.findings) == ((), ())


@pytest.mark.parametrize("name", ["meaning", "uses", "copying", "cost-by-length"])
def test_every_probe_says_how_long_it_takes(name: str) -> None:
    assert list(probe_named(name).seconds) == ["quick", "standard", "full"]


# ---------------------------------------------------------------- meaning


def test_the_study_of_meaning_is_of_tokens_learned_from_its_text() -> None:
    sizes = [MEANING.budgets[budget].changes["corpus"]["tokenizer"]["vocab_size"] for budget in ("quick", "standard")]
    assert sizes == [2048, 4096]
    assert MEANING.arms[1].changes == {"model": {"attention": "none"}}
    assert MEANING.arms[2].changes == {"corpus": {"source": "machado"}}
    assert not MEANING.arms[2].compared


def test_portuguese_is_asked_at_every_budget_with_as_many_tokens() -> None:
    from vitral.core.config import merge

    for budget in ("quick", "standard", "full"):
        study = MEANING.at(budget)
        assert [arm.name for arm in study.arms] == ["two-layers", "without-attention", "portuguese"]
        base = merge({"corpus": {"source": "shakespeare"}}, MEANING.budgets[budget].changes)
        corpus = merge(base, study.arms[2].changes)["corpus"]
        assert corpus == {"source": "machado", "tokenizer": base["corpus"]["tokenizer"]}


def test_the_language_is_told_by_its_small_words() -> None:
    assert language_of("The king and the queen of that land.") == "en"
    assert language_of("Os olhos que não viam uma luz com os seus.") == "pt"
    french = "Il dit que la nuit est belle, et la mer chante au loin sous le ciel noir, sans vent ni voile ici et là."
    assert language_of(french) is None
    assert language_of("") is None


def test_a_text_in_another_language_is_refused_with_the_reason(tiny: RunConfig, tmp_path: Path) -> None:
    path = tmp_path / "french.txt"
    line = (
        "Il dit que la nuit est belle et la mer chante au loin sous le ciel noir, sans vent ni voile ici et encore.\n"
    )
    path.write_text(line * 200, encoding="utf-8", newline="\n")
    french = tiny.model_copy(update={"corpus": CorpusConfig.parse({"source": str(path), "tokenizer": "char"})})
    run = trained(french, {"context_length": 64})
    with pytest.raises(UsageError, match=r"none of the languages .*\(en, pt\)"):
        probe_named("meaning").measure(run)  # type: ignore[arg-type]


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
        # The word before the target is the same in both senses, so copying it tells nothing.
        sentences = (*sense.first_sentences, *sense.second_sentences)
        before = {re.split(rf"\b{sense.word}\b", sentence)[0].split()[-1] for sentence in sentences}
        assert len(before) == 1
        assert len(set(sentences)) == 6
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
    part = Split(tokens, np.array([[0, 2], [2, 12]]))
    assert bytes(passage(tokenizer, part, 4).tolist()) == b"bcd\n"
    assert bytes(passage(tokenizer, part, 6).tolist()) == b"cd\nef\n"
    assert torch.equal(passage(tokenizer, part, 11), torch.full((11,), 10))


def a_reading(
    correlation: float, apart: float, preferences: Sequence[float | None], step: float = 1 / 500
) -> dict[str, Any]:
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
                "across": [1.0, 0.9 - apart - index * step],
            }
            for index, word in enumerate(("bank", "light", "still", "lie"))
        ],
        "pairs": [
            {"kind": "agreement", "good": "Dogs run.", "bad": "Dogs runs.", "preference": each} for each in preferences
        ],
    }


def readings(*args: Any) -> str:
    """All findings about one arm over three seeds."""
    exhibit = shown("meaning", {"base": {seed: a_reading(*args) for seed in (1, 2, 3)}})
    return " ".join(f"{finding.holds} {finding.text}" for finding in exhibit.findings)


def test_findings_about_meaning_follow_the_numbers() -> None:
    text = readings(0.4, 0.1, [1.0] * 19 + [-1.0])
    assert "True The arm base: words with like vectors stand in like contexts (rank correlation +0.400" in text
    assert "True The arm base: the blocks set contexts of two senses of a word apart (+0.103 from the embedding" in text
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
    rounding = readings(0.4, 0.0, [1e-6] * 20, 1e-4)
    assert "every word has the same vector in contexts of both senses" in rounding
    # Words that come apart and words that come together may have a mean of nothing: that is not one vector.
    cancelled = readings(0.4, -0.003, [1.0, 1.0])
    assert "no separation of the contexts of two senses told from chance" in cancelled
    assert "same vector" not in cancelled
    assert "in 50% (30% to 70%) of 20 pairs" in rounding


def test_what_cannot_be_scored_is_left_out() -> None:
    exhibit = shown("meaning", {"base": {1: a_reading(0.4, 0.1, [1.0, 1.0, None, 1.0])}})
    assert "of 3 pairs" in exhibit.findings[2].text
    assert "100% (21% to 100%) of the subjects" in exhibit.findings[2].text
    half = shown("meaning", {"base": {1: a_reading(0.4, 0.1, [1.0, None])}})
    assert "of the subjects" not in half.findings[2].text
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


def comparisons(measured: Mapping[str, Mapping[int, Any]]) -> list[Any]:
    return [finding for finding in shown("meaning", measured).findings if " against the arm " in finding.text]


def test_with_and_without_attention_are_compared_seed_by_seed() -> None:
    def arm(apart: float, right: int, seeds: int = 3, every: int = 2) -> dict[int, Any]:
        return {
            seed: a_reading(
                0.4, apart * (1 + seed / 1000), [1.0] * (right - seed % every) + [-1.0] * (20 - right + seed % every)
            )
            for seed in range(1, 1 + seeds)
        }

    less = comparisons({"with": arm(0.1, 18), "without": arm(0.0, 10, every=3)})
    assert [(finding.arm, finding.holds) for finding in less] == [("without", True), ("without", True)]
    assert "more probable, \N{MINUS SIGN}0.417 against the arm with: less" in less[0].text
    assert "against the arm with: less" in less[1].text
    assert all("after Holm's correction over 2 comparisons" in finding.text for finding in less)
    alike = comparisons({"with": arm(0.1, 18), "without": arm(0.0, 10)})[0]  # 0.4 less in each of three seeds
    assert alike.holds is None
    assert "0.400 against the arm with in every seed" in alike.text
    same = comparisons({"with": arm(0.1, 18), "without": arm(0.1, 18)})
    assert [finding.holds for finding in same] == [False, False]
    assert "no difference seen at this budget" in same[0].text
    few = comparisons({"with": arm(0.1, 18, 2), "without": arm(0.0, 10, 2)})
    assert [finding.holds for finding in few] == [None, None]
    assert "2 of the 3 seeds a verdict needs" in few[0].text


def test_languages_stand_apart_and_are_not_compared() -> None:
    english = {seed: a_reading(0.4, 0.1, [1.0, -1.0]) for seed in (1, 2, 3)}
    concord = {"kind": "concord", "good": "Eu sou.", "bad": "Eu és.", "preference": 1.0}
    portuguese = {seed: reading | {"language": "pt", "pairs": [concord] * 2} for seed, reading in english.items()}
    measured = {"base": english, "other": portuguese}
    exhibit = shown("meaning", measured)
    assert not comparisons(measured)
    tables = [each for each in exhibit.sections if isinstance(each, Table) and "right sentence" in str(each)]
    assert [table.rows[0][0] for table in tables] == ["agreement", "concord"]
    names = [section.name for section in exhibit.sections if isinstance(section, Plot)]
    assert names == ["senses-by-layer", "senses-apart", "senses-by-layer-pt", "senses-apart-pt"]


def test_an_arm_without_a_scored_pair_gets_a_dash() -> None:
    scored = [a_reading(0.4, 0.1, [1.0, 1.0]), a_reading(0.4, 0.1, [1.0, 1.0])]
    scored[1]["pairs"] = [pair | {"kind": "coreference", "preference": None} for pair in scored[1]["pairs"]]
    scored[1]["pairs"] += [{"kind": "agreement", "good": "A", "bad": "B", "preference": 1.0}] * 2
    scored[0]["pairs"] += [pair | {"preference": 1.0} for pair in scored[1]["pairs"][:2]]
    exhibit = shown("meaning", {"base": {1: scored[0]}, "other": {1: scored[1]}})
    table = next(each for each in exhibit.sections if isinstance(each, Table) and "Share of pairs" in str(each))
    cells = {row[0]: row[3:] for row in table.rows}
    assert cells["coreference"][1] == "\N{EN DASH}"
    assert cells["coreference"][0] == cells["agreement"][0] == "100% (28% to 100%)"
    assert cells["agreement"][1] == "100% (34% to 100%)"  # one kind alone needs no correction
