"""Runs side by side: what differs, and whether their losses do. Here as plain data; `side_by_side` measures them."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.config import differences
from vitral.core.shown import Shown, Tabular
from vitral.evaluation.baselines import neighbours
from vitral.runs import RunSummary
from vitral.runs.folder import readable_path

if TYPE_CHECKING:
    from vitral.evaluation import SplitLoss, TargetLosses
    from vitral.runs import SealedRun

SCHEMA = 1
NOT_PLAIN = ("summary", "sealed", "config", "targets")
"""Attributes of a compared run that its plain data do not have as they are."""
NATS, BITS = "nats per token", "bits per character"


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the folders' paths, as few as tell them apart."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    longest = max(map(len, parts), default=1)
    length = next((each for each in range(1, longest) if len({one[-each:] for one in parts}) == len(parts)), longest)
    return [readable_path("/".join(one[-length:])) for one in parts]


def run_record(run: RunSummary) -> dict[str, Any]:
    """A run in a row of plain data."""
    plain = run.plain()
    path = plain.pop("path")
    for key in ("baselines", "when", "seconds", "curve"):
        del plain[key]
    return {**plain, **derived(run), "path": path}


def derived(run: RunSummary) -> dict[str, Any]:
    """Values of a run that follow from others."""
    above, below, loss = None, None, run.test_loss
    if loss is not None and loss == loss and run.baselines and run.objective == "next-token":
        above, below = neighbours(loss, run.baselines)
    stamp = None if run.when is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.when))
    minutes = None if run.seconds is None else round(run.seconds / 60, 4)
    return {"baseline_above": above, "baseline_below": below, "time": stamp, "minutes": minutes}


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run among those that are compared.

    Attributes:
        summary: the run in a few numbers, with its curve; its name is unique among the runs.
        sealed: its files.
        config: keys that affect its numbers, as plain data.
        checkpoint: the step whose weights were measured.
        tokens_per_step: of training.
        tokens_per_second: of training, the median of the logged speeds; None where none was logged.
        targets: its losses target by target; None where they were not measured, or of masked tokens.
        loss: of these weights on the whole test split; None where it was not measured.
        sample: written from the common prompt; None where there is none.
        missing: reason why there is no loss, an English sentence; empty otherwise.
        missing_sample: reason why there is no sample, likewise.
        whole_test_split: whether the whole test split was measured; of a long one only evenly spread parts are, which
            are other parts in other tokens.
    """

    summary: RunSummary
    sealed: "SealedRun"
    config: Mapping[str, Any]
    checkpoint: int
    tokens_per_step: int
    tokens_per_second: float | None
    targets: "TargetLosses | None" = None
    loss: "SplitLoss | None" = None
    sample: str | None = None
    missing: str = ""
    missing_sample: str = ""
    whole_test_split: bool = True

    @property
    def name(self) -> str:
        """A name that is unique among the runs."""
        return self.summary.name

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {
            **run_record(self.summary),
            **{key: value for key, value in vars(self).items() if key not in NOT_PLAIN},
            "curve": self.summary.plain()["curve"],
            "loss": self.loss and self.loss.plain(),
        }


@dataclass(frozen=True)
class PairedDifference:
    """The loss of one run minus that of another on the same test text.

    Attributes:
        unit: "nats per token" (the same tokens) or "bits per character" (other tokens).
        difference: over the whole test split; negative where the first run predicts better.
        low: lower end of the interval over blocks; None where there is no spread to estimate.
        high: upper end, or None.
        confidence: of the interval, corrected for the number of differences, so that all hold together with 95%.
        blocks: the difference in each contiguous block of the test split.
        targets: that both runs predict, or None with other tokens.
    """

    unit: str
    difference: float
    low: float | None
    high: float | None
    confidence: float
    blocks: tuple[float, ...]
    targets: int | None

    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes zero."""
        return (self.low or 0.0) * (self.high or 0.0) > 0  # both ends on one side


@dataclass(frozen=True)
class Relation:
    """How far a run can be compared with another.

    Attributes:
        run: name of the run.
        against: name of the run it is compared with.
        same_text: whether both have the same text, byte for byte.
        same_test: whether their test splits are the same text too, read in the same way.
        same_tokens: whether these have the same tokens.
        same_task: whether both predict the next token, or both masked tokens.
        batches: whether both were trained on the same batches in the same order: "same", "same by configuration" or
            "other".
        batches_differ: names of what makes the batches differ.
        comparable: the unit in which their losses can be compared, or "nothing".
        difference: of their losses; None where they cannot be compared or were not measured.
        why: reason why there is no difference although there could be one, an English sentence; empty otherwise.
    """

    run: str
    against: str
    same_text: bool
    same_test: bool
    same_tokens: bool
    same_task: bool
    batches: str
    batches_differ: tuple[str, ...]
    comparable: str
    difference: PairedDifference | None = None
    why: str = ""


@dataclass(frozen=True, repr=False)
class RunComparison(Shown, Tabular):
    """Runs side by side; print it to read it.

    Attributes:
        runs: in the order they were given.
        relations: of each run but the first, to the first before it with the same test tokens, else with the same test
            text, else to the first of all.
        prompt: of the samples.
        seed: of the samples.
        notes: what was left out, one English sentence each.
    """

    runs: tuple[ComparedRun, ...]
    relations: tuple[Relation, ...]
    prompt: str
    seed: int
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> dict[str, list[Any]]:
        """The keys of the configuration that are not the same in all runs, with the value of each run."""
        first = self.runs[0].config
        keys = {key for run in self.runs[1:] for key, _one, _other in differences(first, run.config)}
        return {key: [_value(run.config, key) for run in self.runs] for key in sorted(keys)}

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "schema": SCHEMA,
            "runs": [run.plain() for run in self.runs],
            "relations": [asdict(relation) for relation in self.relations],
            "configuration": self.changed,
            "prompt": self.prompt,
            "seed": self.seed,
            "notes": list(self.notes),
        }

    def records(self) -> list[dict[str, Any]]:
        """One row for each run."""
        return [{**row, **(row["loss"] or {"loss": None})} for row in (run.plain() for run in self.runs)]


def _value(config: Mapping[str, Any], key: str) -> Any:
    return reduce(lambda table, part: table.get(part) if isinstance(table, Mapping) else None, key.split("."), config)
