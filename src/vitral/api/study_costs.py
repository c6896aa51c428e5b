"""What every named study costs on this machine, before any of it is run."""

from dataclasses import dataclass

from vitral.api.configuring import configure
from vitral.data.config import BPEConfig, ByteConfig, CorpusConfig
from vitral.model import Transformer, cost
from vitral.studies import Study, study_named, study_names
from vitral.studies.design import BudgetName, ResolvedArm, resolve
from vitral.studies.probes import RunProbe, probe_named
from vitral.training import RunConfig
from vitral.training.plans import ExecutionPlan, seconds_per_step
from vitral.training.train import build_model

CHARACTERS = 102
"""Tokens of a character tokenizer whose text is not at hand."""
REFERENCE = 100e9
"""Operations a second of the machine on which probes' times were taken."""


@dataclass(frozen=True)
class StudyCost:
    """What a named study costs at a budget.

    Attributes:
        name: of the study.
        question: what it asks.
        budget: the budget.
        runs: how many models are trained.
        flops: of all trainings and evaluations.
        minutes: on this machine, about.
    """

    name: str
    question: str
    budget: BudgetName
    runs: int
    flops: int
    minutes: float


def study_costs() -> list[StudyCost]:
    """The cost of every named study at every budget it has.

    A few steps of the studies' base are timed here and now; trainings and evaluations are taken to be as fast by their
    operations, and probes as much faster or slower than on the machine where they were timed.
    """
    base = configure("study")
    speed = _flops_per_step(base) / seconds_per_step(base, _model, ExecutionPlan(base.training.dtype, compile=False))
    return [_cost(study_named(name), budget, speed) for name in study_names() for budget in study_named(name).budgets]


def _cost(study: Study, budget: BudgetName, speed: float) -> StudyCost:
    chosen = study.at(budget)
    arms = resolve(chosen, configure(study.base, overrides=[study.budgets[budget].changes]), _vocab_size)
    seeds, flops, measuring = len(chosen.seeds), sum(arm.flops + _evaluating(arm) for arm in arms), 0.0
    for name in chosen.probes:
        probe = probe_named(name)
        times = len(arms) * seeds if isinstance(probe, RunProbe) else 1
        measuring += times * probe.seconds.get(budget, 0.0)
    minutes = (seeds * flops / speed + measuring * REFERENCE / speed) / 60
    return StudyCost(study.name, study.question, budget, len(arms) * seeds, seeds * flops, minutes)


def _evaluating(arm: ResolvedArm) -> int:
    """Operations of a run's evaluations, if its text is long enough for all of them."""
    training = arm.config.training
    forward = cost(arm.config.model, _vocab_size(arm.config.corpus)).forward_flops
    passes = 2 * -(-training.steps // training.evaluate_every)
    return passes * (training.evaluation_tokens or 0) * forward


def _flops_per_step(config: RunConfig) -> float:
    costs = cost(config.model, CHARACTERS)
    return config.tokens_per_step * (costs.forward_flops + costs.backward_flops)


def _model(config: RunConfig) -> Transformer:
    return build_model(config, CHARACTERS)


def _vocab_size(corpus: CorpusConfig) -> int:
    if isinstance(corpus.tokenizer, BPEConfig):
        return corpus.tokenizer.vocab_size
    return 256 if isinstance(corpus.tokenizer, ByteConfig) else CHARACTERS
