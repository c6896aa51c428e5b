"""The results of a study, as plain data read back from its run folders."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

import numpy as np

from vitral.core.config import differences
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.evaluation import NgramBaselines
from vitral.runs import LoadedRun, SealedRun, load_run
from vitral.runs.config import RunConfig, comparable
from vitral.studies.design import Arm, BudgetName, Study
from vitral.studies.estimator import variance_of_trials
from vitral.studies.record import ARMS
from vitral.studies.study_file import translated

CURVE_POINTS = 20


@dataclass(frozen=True)
class RunResult:
    """One arm trained from one seed.

    Attributes:
        seed: of the run.
        path: the run folder.
        curve: (step, test loss in nats per token) of every evaluation, on the test tokens that are
            measured while training.
        train_loss: mean over the batches before the last evaluation, with dropout; None if there was none.
        validation_loss: at the last evaluation; None if there was none.
        test_loss: of the last step's weights, on the whole test split; None if the run did not finish, or it is not
            finite.
        seconds: spent in training steps, evaluations not counted.
        stopped: reason why there is no result, in English, or None.
        training_curve: (step, mean loss of the batches logged since the previous point).
        identity: of the run, the hash of its configuration, text and tokenizer.
    """

    seed: int
    path: Path
    curve: tuple[tuple[int, float], ...]
    train_loss: float | None
    validation_loss: float | None
    test_loss: float | None
    seconds: float
    stopped: str | None = None
    training_curve: tuple[tuple[int, float], ...] = ()
    identity: str = ""


@dataclass(frozen=True)
class ArmResult:
    """One arm over all seeds.

    Attributes:
        arm: as designed.
        config: its whole configuration as plain data, without a seed.
        num_parameters: learned numbers.
        flops_per_token: floating-point operations of one training step, per token, forward and backward.
        runs: one for each seed.
        factor: of the study's unit: a loss in nats per token times it is in that unit.
        flops: floating-point operations of a run's training, the optimizer's and those of trainings before it included.
    """

    arm: Arm
    config: Mapping[str, Any]
    num_parameters: int
    flops_per_token: int
    runs: tuple[RunResult, ...]
    factor: float = 1.0
    flops: int = 0

    @property
    def losses(self) -> dict[int, float]:
        """Test loss at the last step by seed, in the study's unit, of the runs that have one."""
        return {run.seed: run.test_loss * self.factor for run in self.runs if run.test_loss is not None}

    @property
    def sees_one_token(self) -> bool:
        """Whether nothing in this arm carries information from one position to another."""
        model = self.config["model"]
        return model["attention"] == "none" and model.get("recurrence") is None


class Trial(NamedTuple):
    """The runs of an arm with other values, one from each tuning seed.

    Attributes:
        factor: of the arm's first tuned value.
        values: tried, by configuration key.
        losses: on the validation part at the last step, in nats per token; None where it is not finite.
    """

    factor: float
    values: Mapping[str, float]
    losses: tuple[float | None, ...]

    @property
    def loss(self) -> float | None:
        """The geometric mean of the losses; None where one is not finite."""
        finite = [loss for loss in self.losses if loss is not None]
        return geometric_mean(finite) if len(finite) == len(self.losses) else None


class Tuned(NamedTuple):
    """The trials of an arm and the one that was chosen.

    Attributes:
        arm: its name.
        trials: in increasing order of their factors.
        chosen: the factor of the chosen trial.
        at_edge: whether the chosen trial is the first or the last, so that a better value may lie beyond it: the arm is
            untuned.
        by_tie: whether another trial has a lower loss, and the base's value was taken since they cannot be told apart.
    """

    arm: str
    trials: tuple[Trial, ...]
    chosen: float
    at_edge: bool
    by_tie: bool = False

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        trials = [
            {"factor": one.factor, "values": dict(one.values), "validation_loss": one.loss, "losses": [*one.losses]}
            for one in self.trials
        ]
        return {key: getattr(self, key) for key in ("arm", "chosen", "at_edge", "by_tie")} | {"trials": trials}


def trial_error(trials: Iterable[Trial]) -> float:
    """The standard error of the difference of two trials' mean log losses, √(2 σ² / seeds); 0 where too few are finite.

    σ² is that of one run, over all trials: `estimator.variance_of_trials`.
    """
    finite = [[math.log(loss or math.nan) for loss in one.losses] for one in trials if one.loss is not None]
    if len(finite) < 2 or len(finite[0]) < 2:
        return 0.0
    return math.sqrt(2 * variance_of_trials(np.array(finite)) / len(finite[0]))


@dataclass(frozen=True)
class StudyResult:
    """A whole study.

    Attributes:
        study: its design.
        base: the configuration all arms differ from, as plain data, without a seed.
        seeds: of the runs, in order.
        first_seeds: those the study began with; the others were added when these results were there to be seen.
        arms: the base first.
        baselines: n-gram baselines on the same test split.
        curve_baselines: n-gram baselines on the tokens that are measured while training.
        corpus: the runs' record of the text.
        environment: the runs' record of the machine.
        folder: of the study.
        budget: of the study; None for a study of one size.
        measured: by probe: of a run probe arm -> seed -> data, of a study probe the data or None.
        unmeasured: by probe, the reasons, in English, why measurements are missing, each with its arm ("" for the
            study itself).
        tuning: the trials of each arm that was tuned.
        beside_ngrams: by order of the n-grams and by seed, the base's loss minus the baseline's in each block of the
            test text, in nats per token.
    """

    study: Study
    base: Mapping[str, Any]
    seeds: tuple[int, ...]
    first_seeds: tuple[int, ...]
    arms: tuple[ArmResult, ...]
    baselines: NgramBaselines
    curve_baselines: NgramBaselines
    corpus: Mapping[str, Any]
    environment: Mapping[str, Any]
    folder: Path
    budget: BudgetName | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    unmeasured: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    tuning: tuple[Tuned, ...] = ()
    beside_ngrams: Mapping[int, Mapping[int, Sequence[float]]] = field(default_factory=dict)

    def arm(self, name: str) -> ArmResult:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.arm.name == name)

    @property
    def translated(self) -> "StudyResult":
        """The same result with the catalogue's texts in the current language; see `study_file.translated`."""
        study = translated(self.study)
        if study is self.study:
            return self
        named = {arm.name: arm for arm in study.arms}
        arms = (replace(each, arm=named.get(each.arm.name, each.arm)) for each in self.arms)
        return replace(self, study=study, arms=tuple(arms))

    def baseline(self, order: int) -> float:
        """The loss of an n-gram baseline in the study's unit."""
        return self.baselines.orders[order] * self.arms[0].factor


def run_name(arm: str, seed: int) -> str:
    """The run folder of an arm and a seed, relative to the study's folder."""
    return f"{ARMS}/{arm}/seed-{seed}"


def require_config(run: SealedRun, wanted: RunConfig, free: Collection[str] = ()) -> None:
    """Refuse a run of another configuration than its arm's.

    Keys that the study leaves open (not set, or "auto") may have any value: the run has filled them in.

    Args:
        run: the run.
        wanted: the arm's configuration with the run's seed.
        free: keys that may differ.

    Raises:
        UsageError: the configurations differ; names the first key.
    """
    for key, one, other in differences(comparable(wanted), comparable(run.config)):
        if one not in (None, "auto") and key not in ("corpus.source", *free):
            raise UsageError(
                "{path}: is not the run of this arm: {key} is {other!r:.60} there and {one!r:.60} in the "
                "study; put the right run there, or move this one away",
                path=run.path,
                key=key,
                other=other,
                one=one,
            )


def require_parent(run: SealedRun, parent: Path | None) -> None:
    """Refuse a run that began from other weights than the last ones of its arm's parent.

    Args:
        run: the run.
        parent: folder of the finished run whose weights it should begin from; None for random weights.

    Raises:
        UsageError: it began from other weights.
    """
    source = None if parent is None else load_run(parent, "last", lambda line: None)
    if run.identity.parent != (source and source.sealed.as_parent(source.checkpoint)):
        raise UsageError(
            "{path}: is not the run of this arm: it began from other weights than {begins}; put the right run there, "
            "or move this one away",
            path=run.path,
            begins=_("random weights") if parent is None else parent,
        )


def load_last(run: RunResult, arm: ArmResult) -> LoadedRun:
    """The weights after the last step of a finished run.

    Raises:
        UsageError: they cannot be loaded.
    """
    loaded, steps = load_run(run.path, "last"), arm.config["training"]["steps"]
    if loaded.step != steps:
        raise UsageError(
            "{path}: the checkpoint of its last step ({steps:,}) is missing or damaged; train it "
            "again from step {step:,} with vitral resume {path}",
            path=run.path,
            steps=steps,
            step=loaded.step,
        )
    return loaded


def read_run(run: SealedRun) -> RunResult:
    """The result of a run, from the metrics in its folder.

    Raises:
        UsageError: it is damaged; names the file.
    """
    metrics = run.metrics()
    evaluations = [event for event in metrics if event["event"] == "evaluation"]
    curve = tuple((event["step"], event["test_loss"]) for event in evaluations if event.get("test_loss") is not None)
    last = evaluations[-1] if evaluations else {}
    # A run that was killed after it had measured and before it had saved has no weights to go with its last loss.
    finished = any(event["event"] == "end" and event["finished"] for event in metrics)
    test_loss = last.get("test_loss") if finished else None
    stopped = next((event["reason"] for event in metrics if event["event"] == "stopped"), None)
    if test_loss is not None and not math.isfinite(test_loss):
        test_loss, stopped = None, N_("the test loss at the last step is {loss}").format(loss=test_loss)
    return RunResult(
        seed=run.config.seed,
        path=run.path,
        curve=curve,
        train_loss=last.get("train_loss"),
        validation_loss=last.get("validation_loss"),
        test_loss=test_loss,
        seconds=_seconds(metrics, run.config),
        stopped=stopped,
        training_curve=_training_curve(metrics, run.config.training.steps),
        identity=run.identity.run,
    )


def _training_curve(metrics: Sequence[Mapping[str, Any]], steps: int) -> tuple[tuple[int, float], ...]:
    """The logged losses of batches, averaged over CURVE_POINTS equal segments."""
    logged: dict[int, list[float]] = {}
    for event in metrics:
        if event["event"] == "step" and math.isfinite(event["loss"]):
            point = -(-event["step"] * CURVE_POINTS // steps)
            logged.setdefault(point, []).append(event["loss"])
    return tuple((point * steps // CURVE_POINTS, math.fsum(one) / len(one)) for point, one in sorted(logged.items()))


def _seconds(metrics: Sequence[Mapping[str, Any]], config: RunConfig) -> float:
    """Time in training steps, from the logged speeds; right for a resumed run too."""
    before, seconds = 0, 0.0
    for event in metrics:
        if event["event"] == "step" and event["tokens_per_second"] > 0:
            seconds += (event["step"] - before) * config.tokens_per_step / event["tokens_per_second"]
            before = event["step"]
    return seconds
