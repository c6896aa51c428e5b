"""The probe `gradients`: what is measured of a run, and the numbers and judgements of its view."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from vitral.core.errors import UsageError
from vitral.data import Batches, Dataset, prepare
from vitral.figures.sections import Table
from vitral.inspection import gradients_by_block
from vitral.model import Transformer
from vitral.runs import LoadedRun, load_run
from vitral.studies.probe import ArmMeasures, Plot, Trained, View
from vitral.studies.probes.gradients import GRADIENTS
from vitral.training import RunConfig, train

CONTEXT = 8


@pytest.fixture(scope="module")
def dataset(tiny: RunConfig) -> Dataset:
    return prepare(tiny.corpus)


@pytest.fixture(scope="module")
def run(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    path = tmp_path_factory.mktemp("run") / "run"
    config = tiny.plain()
    config["model"] |= {"context_length": CONTEXT, "num_layers": 2}
    train(RunConfig.parse(config), path)
    return load_run(path, "last")


def test_the_fresh_model_is_the_run_before_its_first_step(run: LoadedRun, dataset: Dataset) -> None:
    seed = int(run.config["seed"])
    measured = GRADIENTS.measure(Trained("full", seed, run, dataset, "quick"))
    fresh = Transformer(run.model.config, run.model.vocab_size, seed=seed).eval()
    batches = Batches(dataset.splits["train"], context_length=CONTEXT, batch_size=16, seed=0)
    assert measured["fresh"] == gradients_by_block(fresh, *batches.batch(0))
    assert measured["fresh"] != measured["trained"]
    assert "small" not in measured  # its matrices are GPT-2's already
    assert measured["positions"] == 16 * CONTEXT


def test_a_run_that_sees_its_targets_is_refused(run: LoadedRun, dataset: Dataset) -> None:
    config = run.config | {"training": run.config["training"] | {"allow_leak": True}}
    leaking: Any = SimpleNamespace(model=run.model, tokenizer=run.tokenizer, config=config)
    with pytest.raises(UsageError, match="full is not trained to predict the next token"):
        GRADIENTS.measure(Trained("full", 1, leaking, dataset, "quick"))


def state(stream: list[float | None], scale: list[float] | None = None) -> dict[str, Any]:
    """Measures of one state."""
    return {"loss": 2.0, "stream": stream, "parameters": stream, "scale": scale or [1.0] * len(stream)}


def viewed(measured: Mapping[str, Mapping[int, tuple[dict[str, Any], dict[str, Any]]]]) -> View:
    """The view of made-up arms, each of another model."""
    arms = [
        ArmMeasures(
            name,
            f"the arm {name}",
            {"model": {"num_layers": len(next(iter(runs.values()))[0]["stream"]), "name": name}},
            {seed: {"positions": 5, "fresh": fresh, "trained": trained} for seed, (fresh, trained) in runs.items()},
        )
        for name, runs in measured.items()
    ]
    return GRADIENTS.view(None, arms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fresh", "trained", "values", "shown"),
    [
        (state([1.0, 1.0]), state([2.0, 1.0]), [1.0, 2.0], [True, True]),
        (state([1.0, 1.0]), state([0.05, 1.0]), [1.0, 0.05], [True, False]),
        (state([20.0, 1.0]), state([1.0, 1.0]), [20.0, 1.0], [False, True]),
        # Twenty times the gradient for a stream of a twentieth: the same effect.
        (state([20.0, 1.0], [0.05, 1.0]), state([1.0, 1.0]), [1.0, 1.0], [True, True]),
    ],
)
def test_checks_follow_the_numbers(fresh: dict, trained: dict, values: list[float], shown: list[bool]) -> None:
    view = viewed({"full": dict.fromkeys((1, 2, 3), (fresh, trained))})
    assert [check.value for check in view.checks] == pytest.approx(values)
    assert [check.shown for check in view.checks] == shown
    assert not view.notes


def test_a_gradient_that_is_not_finite_is_noted_and_has_no_check() -> None:
    view = viewed({"full": {1: (state([None, 1.0]), state([1.0, 1.0]))}})
    assert [(note.arm, note.shown) for note in view.notes] == [("full", False)]
    assert [check.shown for check in view.checks] == [True]


def test_the_seed_furthest_from_one_decides() -> None:
    rows = {1: (state([1.0, 1.0]), state([1.0, 1.0])), 2: (state([1.0, 1.0]), state([0.01, 1.0]))}
    assert [(check.value, check.shown) for check in viewed({"full": rows}).checks] == [(1.0, True), (0.01, False)]


def test_the_table_has_geometric_means_and_a_single_block_no_check() -> None:
    rows = {1: (state([1.0, 1.0]), state([4.0, 1.0])), 2: (state([1.0, 1.0]), state([1.0, 1.0]))}
    view = viewed({"full": rows, "single": {1: (state([1.0]), state([2.0]))}})
    (table,) = (section for section in view.sections if isinstance(section, Table))
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (cells["blocks"], cells["stream, trained"], cells["parameters, fresh"]) == ("2", "2", "1")
    assert {check.subject for check in view.checks} == {"the arm full"}


def test_curves_are_drawn_of_deep_arms_and_of_one_of_equal_models_when_fresh() -> None:
    deep = {1: (state([1.0, 2.0, 3.0]), state([1.0, 2.0, 3.0]))}
    plots = {
        plot.name: plot
        for plot in viewed({"deep": deep, "flat": {1: (state([1.0]), state([1.0]))}}).sections
        if isinstance(plot, Plot)
    }
    assert list(plots) == [
        f"gradient-of-the-{kind}-3-blocks-{when}" for kind in ("stream", "parameters") for when in ("fresh", "trained")
    ]
    run = {"positions": 5, "fresh": deep[1][0], "trained": deep[1][1]}
    arms = [ArmMeasures(name, name, {"model": {"num_layers": 3}}, {1: run}) for name in ("one", "two")]
    plots = {plot.name: plot for plot in GRADIENTS.view(None, arms).sections if isinstance(plot, Plot)}  # type: ignore[arg-type]
    assert len(plots["gradient-of-the-stream-3-blocks-fresh"].figure.axes) == 1
    assert len(plots["gradient-of-the-stream-3-blocks-trained"].figure.axes) == 2


def test_a_gradient_that_dies_has_a_panel_of_its_own_scale_and_is_named_in_one_sentence() -> None:
    arms = {name: {1: (state([1.0, 1.0, 1.0]), state([0.5, 0.8, 1.0]))} for name in "abc"}
    arms["dead"] = {1: (state([1.0, 1.0, 1.0]), state([1e-12, 1e-6, 1.0]))}
    plots = {plot.name: plot for plot in viewed(arms).sections if isinstance(plot, Plot)}
    plot = plots["gradient-of-the-stream-3-blocks-trained"]
    shared, own = plot.figure.axes[:3], plot.figure.axes[3]
    assert len({axes.get_ylim() for axes in shared}) == 1
    low, high = shared[0].get_ylim()
    assert 50 < high / low < 200
    assert own.get_ylim()[0] < 1e-12
    assert "1e-12 (the arm dead)" in plot.alt
    assert plot.alt.count(". ") == 0


def test_arms_that_cannot_be_told_apart_in_a_figure_are_left_out_of_it_by_name() -> None:
    view = viewed({f"a{k}": {1: (state([1.0, 1.0]), state([2.0, 1.0]))} for k in range(26)})
    captions = [plot.caption for plot in view.sections if isinstance(plot, Plot)]
    assert all(caption.index("the arm a24") < caption.index("the arm a25") for caption in captions)
    assert len(captions) == 4
