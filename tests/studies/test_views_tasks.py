"""The probes of generated tasks and of prompts: what is measured of small runs, and the numbers of their views."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.studies.conftest import is_plain, viewed
from vitral.core.errors import UsageError
from vitral.data import Dataset, prepare
from vitral.model import Transformer
from vitral.runs import load_run
from vitral.studies.judging import judge
from vitral.studies.probe import Trained
from vitral.studies.probes import probe_named
from vitral.studies.probes.tasks import along_training, half_way
from vitral.training import RunConfig, train

TASKS = {
    "repeats": {"name": "repeats", "sequences": 300, "symbols": 5, "length": 17, "shortest": 3, "longest": 5},
    "markov": {"name": "markov", "sequences": 300, "symbols": 3, "length": 17},
}


def trained(folder: Path, corpus: Mapping[str, Any]) -> Trained:
    """A run of four steps that keeps a checkpoint of every second one."""
    model = {"context_length": 16, "d_model": 12, "num_layers": 2, "num_heads": 3}
    steps = {"steps": 4, "evaluate_every": 4, "checkpoint_every": 2, "keep_checkpoints": 100, "batch_size": 4}
    config = RunConfig.parse({"corpus": dict(corpus), "model": model, "training": steps | {"threads": 1}})
    dataset: Dataset = prepare(config.corpus)
    train(config, folder / "run", dataset=dataset)
    return Trained("base", 1, load_run(folder / "run", "last"), dataset, "quick")


def test_a_trajectory_begins_at_the_weights_the_run_began_from(tmp_path: Path) -> None:
    first = trained(tmp_path / "first", {"task": TASKS["markov"]})
    config = RunConfig.parse({**first.run.config, "training": {**first.run.config["training"], "steps": 2}})
    train(config, tmp_path / "then", dataset=first.dataset, init_from=load_run(first.run.folder.path, "last"))
    then = replace(first, run=load_run(tmp_path / "then", "last"), parent=first.run.folder.path)

    def look(model: Transformer) -> dict[str, float]:
        return {"sum": float(model.get_parameter("head.weight").detach().sum())}

    begun, *_others, last = along_training(then, look)
    assert begun == {"step": 0, **look(first.run.model)}
    assert last == {"step": 2, **look(then.run.model)}
    assert begun["sum"] != along_training(replace(then, parent=None), look)[0]["sum"]


@pytest.mark.parametrize(("name", "task"), [("induction", "repeats"), ("in-context", "markov")])
def test_a_run_of_a_task_is_measured_along_its_training(name: str, task: str, tmp_path: Path) -> None:
    probe = probe_named(name)
    measured = probe.measure(trained(tmp_path, {"task": TASKS[task]}))
    assert is_plain(measured)
    assert [one["step"] for one in measured["steps"]] == [0, 2, 4]
    assert viewed(name, {"base": {1: measured}}).figure is not None
    with pytest.raises(UsageError, match="task"):
        probe.measure(trained(tmp_path / "text", {"source": "sample"}))


def test_the_middle_of_a_change_is_found_between_two_checkpoints() -> None:
    assert half_way([(0, 3.0), (10, 3.0), (20, 1.0), (30, 0.0)], least=1.0) == pytest.approx(17.5)
    assert half_way([(0, 3.0), (10, 2.5)], least=1.0) is None
    assert half_way([(0, 3.0), (10, None), (20, 0.0)], least=1.0) is None


def induction_run(step: int, second: float, without: tuple[float, float]) -> dict[str, Any]:
    """A run whose loss falls and whose scores rise at a step."""

    def scores(share: float) -> dict[str, Any]:
        heads = [{"previous": share, "prefix": share}, {"previous": 0.0, "prefix": 0.0}]
        return {"layers": [{"heads": heads}, {"heads": heads}], "uniform": {"previous": 0.1, "prefix": 0.1}}

    def look(at: int) -> dict[str, Any]:
        done = at >= step
        losses = {"first": 3.0, "second": second if done else 3.0, "later": 0.0}
        return {"losses": losses, **scores(0.9 if done else 0.1)}

    effects = {"previous": without[0], "others": without[1], "induction": 1.0}
    return {
        "exact": 0.1,
        "counted": 2.5,
        "steps": [{"step": at, **look(at)} for at in range(0, 101, 10)],
        "last": look(100),
        "ablation": {
            "prefix": 0.9,
            "without": {
                name: {"increase": each, "prefix": 0.9 - each / 10 - step / 1e4} for name, each in effects.items()
            },
        },
    }


def test_the_claims_of_induction_follow_the_numbers() -> None:
    two = {seed: induction_run(40 + 10 * seed, 0.2 + seed / 100, (2.0 + seed / 10, 0.1)) for seed in (1, 2, 3)}
    view = viewed("induction", {"two": two})
    measured = {claim.comparison.quantity.name: claim.verdict for claim in judge(view.comparisons)}
    assert measured["loss in the second occurrence"] == "better"
    assert measured["loss increase without the previous-token head"] == "higher"
    (check,) = view.checks
    assert check.value == pytest.approx(1.0)
    assert check.verdict == "as expected"
