"""An arm that begins from another arm's last weights: order, weights, record, operations, resuming, refusals."""

import shutil

import pytest

from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.doctor.folders import examine_study
from vitral.runs import enter, load_run
from vitral.studies import Study, run_study
from vitral.studies.design import TUNING_SEEDS
from vitral.studies.resolution import resolve
from vitral.studies.results import run_name
from vitral.training import RunConfig

ARMS = [
    {"name": "base", "title": "from scratch"},
    {"name": "first", "title": "first", "changes": {"corpus": {"share": 0.5}}},
    {"name": "then", "title": "then", "init_from": "first", "changes": {"training": {"steps": 9}}},
    {"name": "only", "title": "the base's configuration, other weights", "init_from": "first"},
    {"name": "last", "title": "a third training", "init_from": "then", "changes": {"training": {"log_every": 2}}},
]
RATE = "training.optimizer.learning_rate"
PLAIN = {"name": "begin", "title": "t", "question": "q", "varies_text": True, "arms": ARMS}
STUDY = Study.parse(PLAIN)


@pytest.fixture(scope="module")
def base(tiny: RunConfig) -> RunConfig:
    return RunConfig.parse(merge(tiny.plain(), {"corpus": {"tokenizer": {"name": "byte"}}}))


@pytest.fixture(scope="module")
def result(base: RunConfig, tmp_path_factory):
    return run_study(STUDY, base, tmp_path_factory.mktemp("begin"), seeds=[1, 2])


def sealed(result, arm: str, seed: int = 1):
    return enter(result.folder / run_name(arm, seed), lambda line: None)


def test_a_run_begins_from_the_last_weights_of_the_same_seed_and_records_them(result) -> None:
    for seed in (1, 2):
        parent = load_run(result.folder / run_name("first", seed), "last")
        for arm in ("then", "only"):
            measured = sealed(result, arm, seed).identity.parent
            assert measured is not None
            assert (measured.run, measured.step) == (parent.sealed.identity.run, parent.step)
            assert measured.manifest == parent.checkpoint.manifest
    assert sealed(result, "base").identity.parent is None
    assert result.arm("only").losses != result.arm("base").losses


def test_operations_contain_those_of_every_training_before(base, result) -> None:
    arms = {arm.arm.name: arm for arm in resolve(STUDY, base, 256)}
    own = {name: arm.flops for name, arm in arms.items()}
    assert arms["then"].all_flops == own["then"] + own["first"]
    assert arms["last"].all_flops == own["last"] + own["then"] + own["first"]
    assert {arm.arm.name: arm.flops for arm in result.arms} == {name: arm.all_flops for name, arm in arms.items()}


def test_a_run_that_began_from_other_weights_is_refused(base, result, tmp_path) -> None:
    out = tmp_path / "wrong"
    shutil.copytree(result.folder, out)
    shutil.rmtree(out / run_name("only", 1))
    shutil.copytree(out / run_name("base", 1), out / run_name("only", 1))
    with pytest.raises(UsageError, match="began from other weights"):
        run_study(STUDY, base, out, seeds=[1, 2])
    assert not [one for one in examine_study(result.folder).findings if one.mark == "wrong"]
    wrong = [one.found for one in examine_study(out).findings if one.mark == "wrong"]
    assert any("began from other weights" in one for one in wrong)
    shutil.rmtree(out / run_name("base", 1))
    shutil.rmtree(out / run_name("only", 1))
    shutil.copytree(result.folder / run_name("only", 1), out / run_name("base", 1))
    with pytest.raises(UsageError, match="began from other weights than random weights"):
        run_study(STUDY, base, out, seeds=[1, 2])


def test_a_parent_without_a_result_leaves_its_children_without_one(base, tmp_path) -> None:
    wild = {"training": {"optimizer": {"name": "adamw", "learning_rate": 1e30}}}
    arms = [ARMS[0], ARMS[1] | {"changes": wild}, ARMS[2]]
    study = Study.parse(PLAIN | {"arms": arms})
    measured = run_study(study, base, tmp_path / "wild", seeds=[1])
    assert measured.arm("first").losses == measured.arm("then").losses == {}
    (run,) = measured.arm("then").runs
    assert run.stopped is not None
    assert "which has no result" in run.stopped
    assert not run.path.exists()


@pytest.mark.parametrize(
    ("arms", "complaint"),
    [
        ([ARMS[0] | {"init_from": "first"}, ARMS[1]], "is the base"),
        ([ARMS[0], ARMS[2], ARMS[1]], "names 'first', which is no arm before it"),
        ([ARMS[0], ARMS[1] | {"init_from": "then"}, ARMS[2]], "names 'then', which is no arm before it"),
    ],
)
def test_circles_and_arms_that_are_not_there_are_refused(arms, complaint) -> None:
    with pytest.raises(UsageError, match=complaint):
        Study.parse(PLAIN | {"arms": arms})


def test_another_model_or_other_tokens_are_refused_before_anything_is_trained(base, tiny, tmp_path) -> None:
    wider = ARMS[2] | {"changes": {"model": {"d_model": 8}}}
    with pytest.raises(UsageError, match=r"another model: model\.d_model is 6 there and 8 here"):
        resolve(Study.parse(PLAIN | {"arms": [*ARMS[:2], wider]}), base, 256)
    (tmp_path / "other.txt").write_text("wxyz " * 900, encoding="utf-8")
    other = {"name": "first", "title": "f", "compared": False}
    other["changes"] = {"corpus": {"source": str(tmp_path / "other.txt")}}
    with pytest.raises(UsageError, match="whose text makes other tokens"):
        run_study(Study.parse(PLAIN | {"arms": [ARMS[0], other, ARMS[2]]}), tiny, tmp_path / "out", seeds=[1])
    assert not (tmp_path / "out").exists()


def test_trials_begin_from_the_trial_that_was_chosen(base, tmp_path) -> None:
    tune = {"tune": {RATE: [0.5, 1.0]}}
    arms = [
        ARMS[0],
        ARMS[1] | tune,
        {"name": "aside", "title": "untuned", "compared": False, "changes": {"training": {"steps": 4}}},
        {"name": "then", "title": "then", "init_from": "first", "tune": {RATE: [0.1, 1.0]}},
        {"name": "also", "title": "also", "init_from": "aside"} | tune,
    ]
    study = Study.parse(PLAIN | {"arms": arms})
    measured = run_study(study, base, tmp_path / "tuned", seeds=[1])
    tuned = {one.arm: one for one in measured.tuning}
    assert set(tuned) == {"first", "then", "also"}

    def identity(path):
        return enter(path, lambda line: None).identity

    def parent_of(path):
        parent = identity(path).parent
        return None if parent is None else parent.run

    tuning = measured.folder / "tuning"
    for seed in TUNING_SEEDS:
        trial = lambda arm, factor, seed=seed: tuning / f"{arm}/x{factor:g}-seed-{seed}"  # noqa: E731
        best = identity(trial("first", tuned["first"].chosen)).run
        assert {parent_of(trial("then", one.factor)) for one in tuned["then"].trials} == {best}
        aside = identity(trial("aside", 1)).run
        assert {parent_of(trial("also", one.factor)) for one in tuned["also"].trials} == {aside}
    # The seeds' runs begin from their own parents, with the values chosen.
    assert parent_of(measured.folder / run_name("then", 1)) == sealed(measured, "first").identity.run
    chosen = sealed(measured, "then").config.training.optimizer.learning_rate
    assert chosen == pytest.approx(0.01 * tuned["then"].chosen)
    assert run_study(study, base, measured.folder, seeds=[1]) == measured
