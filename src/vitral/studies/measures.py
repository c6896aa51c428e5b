"""The measurements of a study's probes: each is made once and kept as JSON beside the runs.

A file has the data, the run and step it is of, and its own hash:

    {"format": 3, "of": {"run": identity, "step": 600}, "data": {...}, "sha256": ...}

"of" is null for a measurement of the study itself. A file that is damaged, or of another run or step, or of an earlier
format, is reported in one line and measured again.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from vitral.core.errors import UsageError, reason
from vitral.core.files import as_json, make, names, read, replace_durably
from vitral.core.language import N_, _, restored, storable
from vitral.core.seals import SEAL, json_object, sealed_json, unsealed_json
from vitral.data import Dataset
from vitral.data.batches import Split, thinned
from vitral.evaluation import NgramBaselines, evaluate_split, ngram_differences
from vitral.runs import LoadedRun, enter
from vitral.studies.design import BudgetName
from vitral.studies.probe import Plain, RunProbe, Setting, Trained, is_causal_lm
from vitral.studies.probes import probe_named
from vitral.studies.record import MEASURES
from vitral.studies.results import ArmResult, RunResult, StudyResult, load_last, run_name, run_path
from vitral.training import Callback, RunConfig, TrainingConfig
from vitral.training.objectives import masking_of

FORMAT = 3
MOST_BYTES = 1 << 26
"""Maximum size of a file."""
WHY = "why"
_OF_RUN = re.compile(rf"{MEASURES}/[^/]+/([^/]+)-seed-(\d{{1,20}})\.json")
USUAL: BudgetName = "standard"
"""The budget of probes in a study of one size."""
FINAL_TOKENS = 5_000_000
"""Most tokens of the test split on which final losses are measured."""


Loaded = TypeVar("Loaded")
Datasets = Mapping[tuple[str, int], Dataset]
"""The text of every run, by arm and seed."""


def measure(result: StudyResult, base: RunConfig, datasets: Datasets, callback: Callback) -> StudyResult:
    """The result with the measurements of all its probes; one that is kept in `measures/` is not made again.

    Args:
        result: the runs.
        base: configuration of the base arm.
        datasets: by arm and seed.
        callback: receives {"event": "probe", "name", "subject"} before each measurement.

    Raises:
        UsageError: a run's last checkpoint cannot be loaded.
        StorageError: the disk did not take a measurement.
    """
    measured, unmeasured = {}, {}
    for name in result.study.probes:
        probe = probe_named(name)
        if isinstance(probe, RunProbe):
            measured[name], unmeasured[name] = _of_runs(probe, result, datasets, callback)
            continue
        setting = Setting(
            base,
            datasets[result.arms[0].arm.name, result.first_seeds[0]],
            result.first_seeds[0],
            result.budget or USUAL,
        )
        kept = Kept(result.folder, f"{MEASURES}/{name}.json", None, callback)
        found = kept.once(name, _("the study"), lambda setting=setting: setting, probe.measure)
        measured[name], unmeasured[name] = (None, (("", found[WHY]),)) if WHY in found else (found, ())
    return replace(result, measured=measured, unmeasured=unmeasured)


def final_losses(result: StudyResult, datasets: Datasets, callback: Callback) -> StudyResult:
    """The result with every run's loss on the whole test split, where only some of it was measured while training.

    The baselines beside the curves become those of all seeds, where each has a text of its own.


    Of a test split of more than FINAL_TOKENS, FINAL_TOKENS evenly spread tokens are measured.
    """
    arms = []
    for arm in result.arms:
        texts = {run.seed: datasets[arm.arm.name, run.seed] for run in arm.runs}
        runs = tuple(_final(arm, run, texts[run.seed], result.folder, callback) for run in arm.runs)
        arms.append(replace(arm, runs=runs))
    return replace(result, arms=tuple(arms), curve_baselines=_curve_baselines(result))


def _curve_baselines(result: StudyResult) -> NgramBaselines:
    """The n-gram baselines beside the curves: where seeds draw the text, the mean of the base's runs."""
    if not result.study.draws_text:
        return result.curve_baselines
    kept = [enter(run.path, lambda line: None).ngrams() for run in result.arms[0].runs]
    found = [NgramBaselines.from_plain(one) for one in kept if one]
    if len(found) < len(kept):
        return result.curve_baselines
    orders = {order: fmean(one.orders[order] for one in found) for order in found[0].orders}
    return NgramBaselines(orders, fmean(one.test_bigram_entropy for one in found))


def _final(arm: ArmResult, run: RunResult, dataset: Dataset, folder: Path, callback: Callback) -> RunResult:
    """The run with the loss of its last weights on the whole test split; itself where it has measured that."""
    test = dataset.splits["test"]
    if run.test_loss is None or thinned(test, arm.config["training"].get("evaluation_tokens")) is test:
        return run

    def look(loaded: LoadedRun) -> Plain:
        masking = masking_of(TrainingConfig.parse(arm.config["training"]).objective, dataset.tokenizer)
        return evaluate_split(loaded.model, final_split(dataset), dataset.tokenizer, masking=masking).plain()

    name = f"{arm.arm.name}-seed-{run.seed}"
    kept = Kept(folder, f"{MEASURES}/test-loss/{name}.json", _of(run, arm), callback)
    found = kept.once("test-loss", name, lambda: load_last(run, arm), look)
    if WHY in found:
        reason = N_("its loss on the whole test split: {reason}").format(reason=found[WHY])
        return replace(run, test_loss=None, stopped=reason)
    return replace(run, test_loss=found["loss"])


def beside_ngrams(result: StudyResult, datasets: Datasets, callback: Callback) -> StudyResult:
    """The result with the base's losses minus the n-gram baselines', by seed and block of the test text.

    They tell how far the standing among the baselines depends on the choice of the test text. None are kept for a base
    of another task than next-token prediction, or where a text is too short or too long.
    """
    base, found = result.arms[0], dict[int, dict[int, list[float]]]()
    if not is_causal_lm(base.config):
        return result
    for run in base.runs:
        if run.test_loss is None:
            continue
        dataset = datasets[base.arm.name, run.seed]

        def look(loaded: LoadedRun, dataset: Dataset = dataset, orders: int = len(result.baselines.orders)) -> Plain:
            by_order = ngram_differences(loaded.model, dataset.splits["train"], final_split(dataset), orders)
            return {"orders": {str(order): blocks for order, blocks in by_order.items()}}

        name = f"{base.arm.name}-seed-{run.seed}"
        kept = Kept(result.folder, f"{MEASURES}/beside-ngrams/{name}.json", _of(run, base), callback)
        one = kept.once("beside-ngrams", name, lambda run=run: load_last(run, base), look)
        if WHY not in one:
            found[run.seed] = {int(order): blocks for order, blocks in one["orders"].items()}
    orders = {order for by_order in found.values() for order in by_order}
    beside = {order: {seed: by_order[order] for seed, by_order in found.items()} for order in sorted(orders)}
    return replace(result, beside_ngrams=beside)


def final_split(dataset: Dataset) -> Split:
    """The test split, thinned to FINAL_TOKENS where it is longer: for final losses and n-gram baselines."""
    return thinned(dataset.splits["test"], FINAL_TOKENS)


def _of_runs(
    probe: RunProbe, result: StudyResult, datasets: Datasets, callback: Callback
) -> tuple[dict[str, dict[int, Plain]], tuple[tuple[str, str], ...]]:
    """The measurements of finished runs by arm and seed, and the reasons, with the arm, why others have none."""
    found: dict[str, dict[int, Plain]] = {arm.arm.name: {} for arm in result.arms}
    why: dict[tuple[str, str], None] = {}
    for arm in result.arms:
        for run in arm.runs:
            if run.seed not in arm.losses:
                continue
            name = arm.arm.name

            def trained(arm: ArmResult = arm, run: RunResult = run) -> Trained:
                name, budget = arm.arm.name, result.budget or USUAL
                before, first = arm.arm.init_from, None
                parent = None if arm.arm.run is None else Path(arm.arm.run)
                if before is not None:
                    first, parent = datasets[before, run.seed], run_path(result.folder, before, run.seed)
                return Trained(name, run.seed, load_last(run, arm), datasets[name, run.seed], budget, first, parent)

            file = f"{MEASURES}/{probe.name}/{name}-seed-{run.seed}.json"
            kept = Kept(result.folder, file, _of(run, arm), callback)
            one = kept.once(probe.name, _("{arm}, seed {seed}", arm=name, seed=run.seed), trained, probe.measure)
            if WHY in one:
                why[name, one[WHY]] = None
            else:
                found[name][run.seed] = one
    return found, tuple(why)


def _of(run: RunResult, arm: ArmResult) -> Plain:
    """The run and step that a measurement is of."""
    return {"run": run.identity, "step": arm.config["training"]["steps"]}


@dataclass(frozen=True)
class Kept:
    """The file of one measurement.

    Attributes:
        folder: the study's folder.
        name: of the file inside it.
        of: the run and step measured; None for the study itself.
        callback: receives a note about a file that is measured again.
    """

    folder: Path
    name: str
    of: Plain | None
    callback: Callback

    def once(self, probe: str, subject: str, load: Callable[[], Loaded], look: Callable[[Loaded], Plain]) -> Plain:
        """What is kept, or a measurement made now and kept; read back, so that both are the same numbers.

        A failure is kept too, as {"why": the reason in English}, so that it is not tried again.

        Args:
            probe: name of the measurement.
            subject: what is measured, for the event.
            load: loads it.
            look: measures it.

        Raises:
            UsageError: it cannot be loaded, or a link or a device stands in the way.
            StorageError: the disk did not take the measurement.
        """
        kept = self._read()
        if kept is not None:
            return kept
        self.callback({"event": "probe", "name": probe, "subject": subject})
        loaded = load()
        data = _looked(look, loaded)
        make((self.folder / self.name).parent)
        content = sealed_json(storable({"format": FORMAT, "of": self.of, "data": data}))
        replace_durably(self.folder / self.name, content)
        return restored(unsealed_json(content))["data"]

    def _read(self) -> Plain | None:
        """The kept data; None where there is none that can be used, which is said."""
        try:
            return data_of(read(self.folder / self.name, MOST_BYTES), self.of)
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            text = N_("{path}: measured again, because {why}").format(path=self.folder / self.name, why=reason(error))
            self.callback({"event": "note", "text": text})
            return None


def _looked(look: Callable[[Loaded], Plain], loaded: Loaded) -> Plain:
    """A measurement; the reason where there is none."""
    try:
        data = look(loaded)
        as_json(data)
    except UsageError as error:
        return {WHY: reason(error)}
    except ValueError as error:  # JSON has no word for infinity
        return {WHY: N_("it is not finite ({error})").format(error=error)}
    return data


class Unsealed(ValueError):
    """A measurement without a hash, as an earlier Vitral kept it."""


def data_of(raw: bytes, of: Plain | None) -> Plain:
    """The data in the file of a measurement.

    Args:
        raw: the bytes of the file.
        of: the run and step it must be of.

    Raises:
        Unsealed: it has no hash.
        ValueError: it is damaged, of another format, or of something else.
    """
    if SEAL not in json_object(raw):
        raise Unsealed(N_("it has no hash, as those of an earlier Vitral"))
    found = restored(unsealed_json(raw))
    if found.get("format") != FORMAT or not isinstance(found.get("data"), dict):
        raise ValueError(
            N_("it is of format {value!a:.40}, this Vitral writes {format}").format(
                value=found.get("format"), format=FORMAT
            )
        )
    if found.get("of") != of:
        raise ValueError(N_("it is of another run or step"))
    return found["data"]


def check_measures(folder: Path) -> tuple[int, int, list[str]]:
    """The measurements in a study's folder: how many are intact, how many have no hash, one line about each other.

    Raises:
        UsageError: a link or a device stands where a folder of the study is expected.
    """
    intact, unsealed, complaints = 0, 0, list[str]()
    for name in _measurements(folder):
        try:
            data_of(read(folder / name, MOST_BYTES), _of_file(folder, name))
            intact += 1
        except Unsealed:
            unsealed += 1
        except (ValueError, OSError) as error:
            complaints.append(N_("{name!a:.120}: {what}").format(name=name, what=reason(error)))
    return intact, unsealed, complaints


def _measurements(folder: Path) -> Iterator[str]:
    for name in names(folder / MEASURES):
        path = f"{MEASURES}/{name}"
        inside = [path] if (folder / path).is_file() else [f"{path}/{one}" for one in names(folder / path)]
        yield from (one for one in inside if one.endswith(".json"))


def _of_file(folder: Path, name: str) -> Plain | None:
    """The run and step that the file of a measurement should be of."""
    found = _OF_RUN.fullmatch(name)
    if found is None:
        return None
    run = enter(folder / run_name(found[1], int(found[2])), lambda line: None)
    return {"run": run.identity.run, "step": run.config.training.steps}
