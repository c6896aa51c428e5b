"""Budgets: which arms and seeds they allow, what a named study becomes, what is refused before anything is trained."""

from pathlib import Path
from typing import Any

import pytest

from tests.studies.conftest import fresh
from vitral.core.errors import UsageError
from vitral.data.config import CorpusConfig
from vitral.studies import Study, run_study, study_named, study_names
from vitral.studies.design import BUDGETS
from vitral.studies.plan import vocabulary
from vitral.studies.probes import probe_named, probes
from vitral.studies.resolution import resolve
from vitral.training import RunConfig
from vitral.training.configuration import configure

MANUAL = Path(__file__).parents[2] / "docs" / "study-files.md"
SMALL = {"model": {"d_model": 14, "num_heads": 7, "num_layers": 3, "context_length": 11}}


def tiers(**more) -> dict:
    """A design with an arm for each budget."""
    arms = [{"name": "base", "title": "the base"}]
    arms += [
        {"name": budget, "title": budget, "budget": budget, "changes": {"model": {"num_layers": index}}}
        for index, budget in enumerate(BUDGETS)
    ]
    budgets = {"quick": {"seeds": [2]}, "standard": {}}
    return {
        "name": "tiers",
        "title": "Tiers",
        "question": "?",
        "arms": arms,
        "budgets": budgets,
        "seeds": [2, 3],
        **more,
    }


def test_a_smaller_budget_leaves_out_arms_and_seeds() -> None:
    study = Study.parse(tiers())
    quick, standard = study.at("quick"), study.at("standard")
    assert [arm.name for arm in quick.arms] == ["base", "quick"]
    assert [arm.name for arm in standard.arms] == ["base", "quick", "standard"]
    assert (quick.seeds, standard.seeds) == ((2,), (2, 3))
    with pytest.raises(UsageError, match="no budget is called 'full'; known: quick, standard"):
        study.at("full")


@pytest.mark.parametrize("name", study_names())
def test_every_named_study_has_budgets_that_can_be_run(name: str) -> None:
    study = study_named(name)
    assert Study.parse(study.plain()) == study
    assert tuple(study.budgets) in (BUDGETS, BUDGETS[:2])
    assert all((study.source, study.claim, study.design))
    seen: set[str] = set()
    for budget in study.budgets:
        chosen = study.at(budget)
        base = configure(study.base, overrides=[study.budgets[budget].changes])
        arms = resolve(chosen, base, vocabulary)
        assert len(arms) == len(chosen.arms)
        names = {arm.name for arm in chosen.arms}
        assert seen <= names  # a larger budget drops no arm
        seen = names
    for probe in study.probes:
        assert probe_named(probe).name == probe


def test_every_probe_is_in_the_manual_and_in_a_named_study() -> None:
    manual = MANUAL.read_text(encoding="utf-8")
    assert [name for name in probes() if f"`{name}`" not in manual] == []
    assert {probe for name in study_names() for probe in study_named(name).probes} == {*probes()}


CAUSAL = ("attention-sinks", "by-position", "context", "few-shot", "forgetting", "gradients", "head-patterns")
CAUSAL += (
    "in-context",
    "induction",
    "meaning",
    "recall",
    "related-words",
    "relevance",
    "saturation",
    "strategies",
    "written-words",
)


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("training", [{"objective": {"name": "masked"}, "allow_leak": False}, {"allow_leak": True}])
def test_a_run_that_does_not_predict_the_next_token_from_the_past_is_not_measured(
    name: str, training: dict, tiny: RunConfig
) -> None:
    run: Any = fresh(tiny)
    run.run.config = {"training": training}
    with pytest.raises(UsageError, match="base is not trained to predict the next token"):
        probe_named(name).measure(run)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"against": "later"}, "names 'later', which is no arm before it"),
        ({"against": "big"}, "names 'big', which needs a larger budget"),
        ({"against": "apart"}, "compared with 'apart', whose loss is not compared"),
        ({"match": "seconds"}, "seconds"),
    ],
)
def test_arms_that_cannot_be_are_refused(changes: dict, complaint: str) -> None:
    arm = {"name": "other", "title": "other", "changes": {"model": {"norm": "post"}}, **changes}
    big = {"name": "big", "title": "big", "changes": {"model": {"num_layers": 5}}, "budget": "standard"}
    apart = {"name": "apart", "title": "apart", "changes": {"model": {"num_layers": 7}}, "compared": False}
    later = {"name": "later", "title": "later", "changes": {"model": {"norm": "none"}}}
    with pytest.raises(UsageError, match=complaint):
        Study.parse(tiers(arms=[{"name": "base", "title": "base"}, big, apart, arm, later]), "mine.toml")


def test_arms_are_tested_on_the_same_characters() -> None:
    tail = {"name": "tail", "title": "tail", "changes": {"corpus": {"split": "tail"}}}
    arms = [{"name": "base", "title": "base"}, tail]
    with pytest.raises(UsageError, match=r"arm tail: corpus\.split is not the base's"):
        resolve(Study.parse(tiers(arms=arms, varies_text=True)), RunConfig(), vocabulary)
    arms[1] = {**tail, "compared": False}
    assert len(resolve(Study.parse(tiers(arms=arms, varies_text=True)), RunConfig(), vocabulary)) == 2


def test_steps_are_matched_to_the_bases_operations() -> None:
    deep = {"name": "deep", "title": "deep", "match": "flops", "changes": {"model": {"num_layers": 9}}}
    study = Study.parse(tiers(arms=[{"name": "base", "title": "base"}, deep]))
    base = RunConfig.parse({**SMALL, "training": {"steps": 997, "evaluate_every": 997}})
    first, matched = resolve(study, base, 31)
    one_step = matched.flops // matched.config.training.steps
    assert matched.config.training.steps < 997
    assert abs(matched.flops - first.flops) <= one_step / 2
    assert matched.config.training.evaluate_every == matched.config.training.steps


def test_a_text_that_cannot_feed_an_arm_is_refused_before_anything_is_trained(tiny: RunConfig, tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("a rose is a rose is a rose, and so on. " * 4, encoding="utf-8")
    long = {"name": "long", "title": "long", "changes": {"model": {"context_length": 211}}}
    study = Study.parse(tiers(arms=[{"name": "base", "title": "base"}, long]))
    config = tiny.model_copy(update={"corpus": CorpusConfig.parse({"source": str(text), "split": "tail"})})
    with pytest.raises(UsageError, match=r"arm long: .*context_length = 211"):
        run_study(study, config, tmp_path / "out")
    assert not (tmp_path / "out").exists()
