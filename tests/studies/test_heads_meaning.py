"""The study of heads: what is measured on a tiny run, and findings that follow from the numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, prepare
from vitral.figures.grid import value_grid
from vitral.figures.style import svg_bytes
from vitral.inspection import BROAD, KINDS
from vitral.model import ModelConfig, Transformer
from vitral.runs import LoadedRun, RunFolder
from vitral.studies import study_named
from vitral.studies.probes import Exhibit, Plot, Trained, probe_named
from vitral.training import RunConfig

HEADS = study_named("heads")


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


@pytest.mark.parametrize("name", ["head-patterns"])
@pytest.mark.parametrize("training", [{"objective": {"name": "masked"}, "allow_leak": False}, {"allow_leak": True}])
def test_runs_that_are_not_of_next_tokens_are_refused(name: str, training: Any, tiny: RunConfig) -> None:
    from dataclasses import replace

    run = trained(tiny)
    run = replace(run, run=replace(run.run, config={"training": training}))
    with pytest.raises(UsageError, match="next token"):
        probe_named(name).measure(run)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["head-patterns", "uses"])
def test_nothing_measured_shows_nothing(name: str) -> None:
    for nothing in ({}, {"base": {}}):
        arms = [SimpleNamespace(arm=SimpleNamespace(name="base", title="the base"), config={})]
        found = probe_named(name).show(SimpleNamespace(arms=arms), nothing)  # type: ignore[arg-type]
        assert (found.sections, found.findings) == ((), ())


@pytest.mark.parametrize("name", ["head-patterns", "uses"])
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
