"""The measurements of a study's probes: each is made once and kept as JSON beside the runs.

A file has the data, the run and step it is of, and its own hash:

    {"format": 3, "of": {"run": identity, "step": 600}, "data": {...}, "sha256": ...}

"of" is null for a measurement of the study itself. A file that is damaged, or of another run or step, or of an earlier
format, is reported in one line and measured again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from vitral.core.errors import UsageError, reason
from vitral.core.files import as_json, make, names, read, replace_durably, sealed_json, unsealed_json
from vitral.core.language import N_, _, restored, storable
from vitral.data import Dataset
from vitral.data.batches import thinned
from vitral.evaluation import NgramBaselines, evaluate_split, ngram_differences
from vitral.evaluation.losses import final_split
from vitral.evaluation.masking import masking_of
from vitral.runs import LoadedRun, enter
from vitral.studies.design import BudgetName
from vitral.studies.probe import Plain, Probe, Setting, Trained
from vitral.studies.probes import probe_named
from vitral.studies.record import MEASURES
from vitral.studies.resolution import is_causal_lm
from vitral.studies.results import ArmResult, RunResult, StudyResult, load_last, run_name
from vitral.studies.texts import mean_baselines
from vitral.training import Callback, RunConfig

FORMAT = 4
MOST_BYTES = 1 << 26
"""Maximum size of a file."""
WHY = "why"
USUAL: BudgetName = "standard"
"""The budget of probes in a study of one size."""


Loaded = TypeVar("Loaded")
Datasets = Mapping[tuple[str, int], Dataset]
"""The text of every run, by arm and seed."""


def measure(result: StudyResult, base: RunConfig, datasets: Datasets, callback: Callback) -> StudyResult:
    """The result with its final losses and the measurements of its probes; what `measures/` keeps is not made again.

    Args:
        result: the runs.
        base: configuration of the base arm.
        datasets: by arm and seed.
        callback: receives {"event": "probe", "name", "subject"} before each measurement.

    Raises:
        UsageError: a run's last checkpoint cannot be loaded.
        StorageError: the disk did not take a measurement.
    """
    measured, unmeasured, kept, seed = {}, {}, Kept(result.folder, callback), result.first_seeds[0]
    result = _beside_ngrams(_final_losses(result, datasets, kept), datasets, kept)
    setting = Setting(base, datasets[result.arms[0].arm.name, seed], seed, result.budget or USUAL)
    for name in result.study.probes:
        probe = probe_named(name)
        if probe.of_runs:
            measured[name], unmeasured[name] = _of_runs(probe, result, datasets, kept)
            continue
        data = kept.once(name, name, _("the study"), None, lambda: setting, probe.measure)
        measured[name], unmeasured[name] = (None, (("", data[WHY]),)) if WHY in data else (data, ())
    return replace(result, measured=measured, unmeasured=unmeasured)


def _of_runs(
    probe: Probe, result: StudyResult, datasets: Datasets, kept: "Kept"
) -> tuple[dict[str, dict[int, Plain]], tuple[tuple[str, str], ...]]:
    """The measurements of finished runs by arm and seed, and the reasons, with the arm, why others have none."""
    measured: dict[str, dict[int, Plain]] = {arm.arm.name: {} for arm in result.arms}
    why: dict[tuple[str, str], None] = {}
    for arm, run in ((one, run) for one in result.arms for run in one.runs if run.seed in one.losses):
        name, before = arm.arm.name, arm.arm.init_from
        parent = arm.arm.begun or (None if before is None else result.folder / run_name(before, run.seed))
        first = None if before is None else datasets[before, run.seed]
        of = datasets[name, run.seed], result.budget or USUAL, first, parent
        look = lambda loaded: probe.measure(Trained(name, run.seed, loaded, *of))  # noqa: B023, E731
        one = kept.of_run(probe.name, arm, run, look)
        if WHY in one:
            why[name, one[WHY]] = None
        else:
            measured[name][run.seed] = one
    return measured, tuple(why)


def _final_losses(result: StudyResult, datasets: Datasets, kept: "Kept") -> StudyResult:
    """The result with every run's loss on the whole test split, where only some of it was measured while training.

    The baselines beside the curves become those of all seeds, where each has a text of its own.
    Of a test split of more than FINAL_TOKENS, FINAL_TOKENS evenly spread tokens are measured.
    """

    def final(arm: ArmResult, run: RunResult) -> RunResult:
        dataset = datasets[arm.arm.name, run.seed]
        test = dataset.splits["test"]
        if run.test_loss is None or thinned(test, arm.config["training"].get("evaluation_tokens")) is test:
            return run

        def look(loaded: LoadedRun) -> Plain:
            masking = masking_of(loaded.sealed.config.training.objective, loaded.tokenizer)
            return evaluate_split(loaded.model, final_split(dataset), loaded.tokenizer, masking=masking).plain()

        data = kept.of_run("test-loss", arm, run, look)
        if WHY not in data:
            return replace(run, test_loss=data["loss"])
        reason = N_("its loss on the whole test split: {reason}").format(reason=data[WHY])
        return replace(run, test_loss=None, stopped=reason)

    arms = (replace(arm, runs=tuple(final(arm, run) for run in arm.runs)) for arm in result.arms)
    result = replace(result, arms=tuple(arms))
    if not result.study.draws_text:
        return result
    counted = (enter(run.path, lambda line: None).ngrams() for run in result.arms[0].runs)
    counts = [NgramBaselines.from_plain(one) for one in counted if one]
    return replace(result, curve_baselines=mean_baselines(counts)) if counts else result


def _beside_ngrams(result: StudyResult, datasets: Datasets, kept: "Kept") -> StudyResult:
    """The result with the base's losses minus the n-gram baselines', by seed and block of the test text.

    They tell how far the standing among the baselines depends on the choice of the test text. None are kept for a base
    of another task than next-token prediction, or where a text is too short or too long.
    """
    base, orders = result.arms[0], len(result.baselines.orders)
    beside: dict[int, dict[int, list[float]]] = {}
    for run in base.runs if is_causal_lm(base.config) else ():
        if run.test_loss is None:
            continue

        def look(loaded: LoadedRun, dataset: Dataset = datasets[base.arm.name, run.seed]) -> Plain:
            by_order = ngram_differences(loaded.model, dataset.splits["train"], final_split(dataset), orders)
            return {"orders": {str(order): blocks for order, blocks in by_order.items()}}

        for order, blocks in kept.of_run("beside-ngrams", base, run, look).get("orders", {}).items():
            beside.setdefault(int(order), {})[run.seed] = blocks
    return replace(result, beside_ngrams=dict(sorted(beside.items())))


class Kept(NamedTuple):
    """The files of a study's measurements.

    Attributes:
        folder: the study's folder.
        callback: receives an event before each measurement, and a note about a file that is measured again.
    """

    folder: Path
    callback: Callback

    def of_run(self, probe: str, arm: ArmResult, run: RunResult, look: Callable[[LoadedRun], Plain]) -> Plain:
        """What is measured of the last weights of a run; see `once`."""
        of = {"run": run.identity, "step": arm.config["training"]["steps"]}
        subject = _("{arm}, seed {seed}", arm=arm.arm.name, seed=run.seed)
        file = f"{probe}/{arm.arm.name}-seed-{run.seed}"
        return self.once(probe, file, subject, of, lambda: load_last(run, arm), look)

    def once(
        self,
        probe: str,
        file: str,
        subject: str,
        of: Plain | None,
        load: Callable[[], Loaded],
        look: Callable[[Loaded], Plain],
    ) -> Plain:
        """What is kept, or a measurement made now and kept; read back, so that both are the same numbers.

        A failure is kept too, as {"why": the reason in English}, so that it is not tried again.

        Args:
            probe: name of the measurement.
            file: its file, without `.json`.
            subject: what is measured, for the event.
            of: the run and step measured; None for the study itself.
            load: loads it.
            look: measures it.

        Raises:
            UsageError: it cannot be loaded, or a link or a device stands in the way.
            StorageError: the disk did not take the measurement.
        """
        path = self.folder / MEASURES / f"{file}.json"
        try:
            kept = restored(unsealed_json(read(path, MOST_BYTES)))
            if (kept.get("format"), kept.get("of")) == (FORMAT, of):
                return kept["data"]
            raise ValueError(N_("it is of another format, run or step"))
        except FileNotFoundError:
            pass
        except (ValueError, OSError) as error:
            text = N_("{path}: measured again, because {why}").format(path=path, why=reason(error))
            self.callback({"event": "note", "text": text})
        self.callback({"event": "probe", "name": probe, "subject": subject})
        loaded = load()
        try:
            data = look(loaded)
            as_json(data)
        except UsageError as error:
            data = {WHY: reason(error)}
        except ValueError as error:  # JSON has no word for infinity
            data = {WHY: N_("it is not finite ({error})").format(error=error)}
        make(path.parent)
        content = sealed_json(storable({"format": FORMAT, "of": of, "data": data}))
        replace_durably(path, content)
        return restored(unsealed_json(content))["data"]


def check_measures(folder: Path) -> tuple[int, list[str]]:
    """The measurements in a study's folder: how many agree with their hashes, one line about each other.

    Raises:
        UsageError: a link or a device stands where a folder of the study is expected.
    """
    intact, complaints = 0, list[str]()
    for name in names(folder / MEASURES):
        path = folder / MEASURES / name
        for file in [path] if path.is_file() else [path / one for one in names(path)]:
            try:
                intact += file.suffix == ".json" and bool(unsealed_json(read(file, MOST_BYTES)))
            except (ValueError, OSError) as error:
                relative = file.relative_to(folder)
                complaints.append(N_("{name!a:.120}: {what}").format(name=str(relative), what=reason(error)))
    return intact, complaints
