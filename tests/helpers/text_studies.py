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
    arms = []
    for number, arm in enumerate(resolved(study, budget)):
        own = numpy_stream(5, "made", number).standard_normal(len(seeds))
        common = numpy_stream(5, "common").standard_normal(len(seeds))
        values = [losses[arm.arm.name] + spread * (z + 3 * y) for z, y in zip(own, common, strict=True)]
        runs = tuple(RunResult(s, tmp_path, ((1, v),), None, None, v, 1.0) for s, v in zip(seeds, values, strict=True))
        arms.append(ArmResult(arm.arm, arm.config.plain(), arm.num_parameters, arm.flops_per_token, runs))
    lines = NgramBaselines({1: 3.2, 2: 2.5, 3: 1.9}, 2.5)
    return StudyResult(
        study.at(budget), arms[0].config, seeds, seeds, tuple(arms), lines, lines, {}, {}, tmp_path, budget
    )


def shown(probe: Probe, result: StudyResult, measured: dict) -> View:
    """The probe's view of this result and these measures."""
    arms = [
        ArmMeasures(arm.arm.name, arm.arm.title, arm.config, measured[arm.arm.name])
        for arm in result.arms
        if measured.get(arm.arm.name)
    ]
    return probe.view(result, arms)
