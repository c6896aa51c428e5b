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
from vitral.figures.grid import value_grid
from vitral.figures.sections import Table
from vitral.figures.style import svg_bytes
from vitral.inspection import BROAD, KINDS
from vitral.model import ModelConfig, Transformer
from vitral.runs import LoadedRun, RunFolder
from vitral.studies import study_named
from vitral.studies.probes import Exhibit, Plot, Trained, probe_named
from vitral.studies.probes.meaning import language_of, languages, passage
from vitral.training import RunConfig

HEADS = study_named("heads")
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
    assert [finding.holds for finding in exhibit.findings] == [None, None]
    assert "1 of the 3 seeds that a verdict needs" in exhibit.findings[1].text


def test_two_seeds_give_none_either_however_far_apart_they_are() -> None:
    measured = {
        "many": {seed: a_run(["near", "line"], 0.4 + seed / 1000, 0.9, 0.5) for seed in (1, 2)},
        "one": {seed: a_run(["near"], 0.1, 0.1, None) for seed in (1, 2)},
    }
    findings = shown("head-patterns", measured, {"many": 2, "one": 1}).findings
    assert [finding.holds for finding in findings] == [None] * 3


def test_comparisons_of_heads_are_corrected_for_one_another() -> None:
    """A difference whose p value is 0.035 alone is none where there is another comparison that shows less."""
    from vitral.studies.statistics import paired_difference

    spread = {1: 0.1, 2: 0.2, 3: 0.15}
    alone = paired_difference(list(spread.values()), [0.0] * 3).p_value
    assert alone is not None
    assert 0.05 / 2 < alone < 0.05

    def finding(together: float) -> Any:
        """About one head less than two, which are worth in all what they are one by one, or more."""
        many = {
            seed: a_run(["near"] * 2, 0.1 + by, 2 * (0.1 + by) + together + (seed - 2) / 9, 0.5)
            for seed, by in spread.items()
        }
        one = {seed: a_run(["near"], 0.1, 0.1, None) for seed in spread}
        exhibit = shown("head-patterns", {"many": many, "one": one}, {"many": 2, "one": 1})
        return next(each for each in exhibit.findings if "increase without one" in each.text)

    assert finding(0.0).holds is False
    assert "p = 0.070 after Holm's correction over 2 comparisons" in finding(0.0).text
    assert finding(9.0).holds is True


def test_more_heads_than_can_be_read_are_shown_by_their_first_layers() -> None:
    run = a_run(["near"] * 24, 0.1, 2.4, 0.5)
    run["layers"] = run["layers"] * 4
    exhibit = shown("head-patterns", {"base": {1: run}}, {"base": 24})
    plot = next(section for section in exhibit.sections if isinstance(section, Plot))
    assert "the first 48 of 96 heads" in plot.caption
    svg = svg_bytes(plot.figure).decode()
    assert "block 1, head 23: near" in svg
    assert "block 2" not in svg
    wide = shown("head-patterns", {"base": {1: a_run(["near"] * 70, 0.1, 7.0, 0.5)}}, {"base": 70})
    assert any("the first 63 of 70 heads" in section.caption for section in wide.sections if isinstance(section, Plot))


def test_attention_is_looked_at_in_pieces_with_the_same_numbers(
    tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vitral.inspection import knockout
    from vitral.studies.probes import head_patterns

    run = trained(tiny, {"initialisation": "pytorch"})
    whole = head_patterns.measure(run)
    monkeypatch.setattr(head_patterns, "MOST_BYTES", 330_000)
    monkeypatch.setattr(knockout, "MOST_BYTES", 75_000)
    assert 1 < head_patterns.windows_at_once(run.run.model) < 16
    assert near(whole, head_patterns.measure(run))
    assert not near(whole, head_patterns.measure(trained(tiny, {"initialisation": "wide"})))


def near(one: Any, other: Any) -> bool:
    """Whether two measures are alike to rounding."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    return one == pytest.approx(other, abs=1e-6) if isinstance(one, float) else one == other


@pytest.mark.parametrize("name", ["head-patterns", "meaning"])
@pytest.mark.parametrize("training", [{"objective": {"name": "masked"}, "allow_leak": False}, {"allow_leak": True}])
def test_runs_that_are_not_of_next_tokens_are_refused(name: str, training: Any, tiny: RunConfig) -> None:
    from dataclasses import replace

    run = trained(tiny)
    run = replace(run, run=replace(run.run, config={"training": training}))
    with pytest.raises(UsageError, match="next token"):
        probe_named(name).measure(run)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["head-patterns", "meaning", "uses", "copying", "cost-by-length"])
def test_nothing_measured_shows_nothing(name: str) -> None:
    for nothing in ({}, {"base": {}}):
        arms = [SimpleNamespace(arm=SimpleNamespace(name="base", title="the base"), config={})]
        found = probe_named(name).show(SimpleNamespace(arms=arms), nothing)  # type: ignore[arg-type]
        assert (found.sections, found.findings) == ((), ())


@pytest.mark.parametrize("name", ["head-patterns", "meaning", "uses", "copying", "cost-by-length"])
def test_every_probe_says_how_long_it_takes(name: str) -> None:
    assert list(probe_named(name).seconds) == ["quick", "standard", "full"]


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
