"""Made-up results of studies whose arms differ in text or tokens."""

from pathlib import Path

from vitral.core.config import merge
from vitral.core.streams import numpy_stream
from vitral.data import CorpusConfig
from vitral.evaluation import NgramBaselines
from vitral.studies import ArmResult, RunResult, StudyResult
from vitral.studies.design import Study
from vitral.studies.probe import ArmMeasures, Probe, View
from vitral.studies.resolution import resolve
from vitral.training import RunConfig

SEEDS = (1, 2, 3)


def vocabulary(corpus: CorpusConfig) -> int:
    return getattr(corpus.tokenizer, "vocab_size", {"char": 109, "byte": 256}.get(corpus.tokenizer.name, 0))


def resolved(study: Study, budget, **changes):
    base = merge({"model": {"context_length": 64}, "training": {"steps": 240}}, study.budgets[budget].changes)
    return resolve(study.at(budget), RunConfig.parse(merge(base, changes)), vocabulary)


def made(tmp_path: Path, study: Study, budget, losses, seeds=SEEDS, spread=0.002) -> StudyResult:
    """A result in which arms have these mean losses, in nats per token, and seeds a common and an own scatter."""
    common, each = numpy_stream(5, "common").standard_normal(len(seeds)), {}
    for number, arm in enumerate(study.at(budget).arms):
        own = numpy_stream(5, "made", number).standard_normal(len(seeds))
        each[arm.name] = [losses[arm.name] + spread * (z + 3 * y) for z, y in zip(own, common, strict=True)]
    return result_of(study, budget, each, seeds, tmp_path)


def result_of(study: Study, budget, losses, seeds, folder: Path) -> StudyResult:
    """A result in which the runs of an arm have these losses, in the order of the seeds."""
    arms = []
    for arm in resolved(study, budget):
        values = zip(seeds, losses[arm.arm.name], strict=True)
        runs = tuple(RunResult(seed, folder, ((1, loss),), None, None, loss, 1.0) for seed, loss in values)
        arms.append(ArmResult(arm.arm, arm.config.plain(), arm.num_parameters, arm.flops_per_token, runs))
    lines = NgramBaselines({1: 3.2, 2: 2.5, 3: 1.9}, 2.5)
    return StudyResult(
        study.at(budget), arms[0].config, seeds, seeds, tuple(arms), lines, lines, {}, {}, folder, budget
    )


def shown(probe: Probe, result: StudyResult, measured: dict) -> View:
    """The probe's view of this result and these measures."""
    arms = [
        ArmMeasures(arm.arm.name, arm.arm.title, arm.config, measured[arm.arm.name])
        for arm in result.arms
        if measured.get(arm.arm.name)
    ]
    return probe.view(result, arms)
