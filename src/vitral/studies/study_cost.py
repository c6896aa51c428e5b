"""The time of every named study on this machine, from a training step of each of its models."""

import json
from dataclasses import dataclass

import torch

from vitral.core.process import using_threads
from vitral.data.config import BPEConfig, ByteConfig, CorpusConfig
from vitral.model import Transformer
from vitral.studies import Study, study_named, study_names
from vitral.studies.design import BUDGETS, BudgetName
from vitral.studies.measures import FINAL_TOKENS
from vitral.studies.probes import probe_named
from vitral.studies.resolution import ResolvedArm, resolve
from vitral.studies.tuning import rows
from vitral.training import RunConfig
from vitral.training.configuration import configure
from vitral.training.deadline import FORWARD
from vitral.training.optimizer_cost import step_flops
from vitral.training.plans import resolve_plan
from vitral.training.run import build_model
from vitral.training.trials import ExecutionPlan, time_steps

CHARACTERS = 102
"""Vocabulary of a character tokenizer whose text is not at hand."""
HELD_OUT = {"validation": 283_542, "test": 555_000}
"""Characters of these parts of the studies' text, the works of Shakespeare."""
PER_TOKEN = {"char": 1.0, "byte": 1.0, "bpe": 2.2}
"""Characters in a token of that text, by tokenizer."""
MOST_FLOPS = 2e10
"""A model whose step has more operations is not timed; it is taken to be as fast as the largest one that is timed."""
REFERENCE = 100e9
"""FLOPs per second of the machine on which the times of probes were measured."""
FURTHER = 0.3
"""Trials beyond the planned ones of an arm that is tuned, on the average over many arms."""
SECONDS_OF_A_RUN = 0.5
"""Of a run besides its steps and evaluations: the model, the folder, checkpoints."""
SECONDS_OF_A_STUDY = 10.0
"""Of a study besides its runs and probes: the text, n-gram baselines, the report with its figures."""


@dataclass(frozen=True)
class StudyCost:
    """The cost of a named study at a budget.

    Attributes:
        name: of the study.
        question: the question it asks.
        budget: the budget.
        runs: number of models trained, trials of tuning included, one after the other.
        flops: of all training.
        minutes: estimate for this machine when nothing else runs.
    """

    name: str
    question: str
    budget: BudgetName
    runs: int
    flops: int
    minutes: float


class Paces:
    """How long models' steps take here; those that differ only in numbers that cost nothing are one."""

    def __init__(self) -> None:
        """Nothing is timed yet."""
        self._known: dict[str, float] = {}
        self._threads: dict[int, int] = {}
        self._largest: tuple[int, float] | None = None

    def threads(self, base: RunConfig) -> int:
        """The threads that a study with this base chooses.

        The longer a step, the more threads are worth: a base is timed only where those timed before, with a shorter and
        a longer step, have different numbers of threads.
        """
        flops = step_flops(base, vocabulary(base.corpus))
        below = max((known for known in self._threads if known <= flops), default=None)
        above = min((known for known in self._threads if known >= flops), default=None)
        if above is not None and self._threads[above] == 1:
            return 1
        if below is not None and self._threads[below] > 1:
            return self._threads[below]
        chosen = resolve_plan(base, _model, 10**9).config.training.threads
        self._threads[flops] = chosen or torch.get_num_threads()
        return self._threads[flops]

    def of(self, config: RunConfig, threads: int) -> float:
        """Seconds of a step of a configuration with these threads."""
        flops, key = step_flops(config, vocabulary(config.corpus)), self._key(config, threads)
        if flops > MOST_FLOPS and self._largest is not None:
            least, seconds = self._largest
            return seconds * flops / least
        if key not in self._known:
            with using_threads(threads):
                plan = ExecutionPlan(config.training.dtype, compile=False)
                self._known[key] = time_steps(config, _model, plan).steady
        if self._largest is None or flops > self._largest[0]:
            self._largest = flops, self._known[key]
        return self._known[key]

    def _key(self, config: RunConfig, threads: int) -> str:
        """What decides how long a step takes."""
        model, training = config.model.plain(), config.training
        for key in ("initialisation", "residual"):
            del model[key]
        model["norm"] = model["norm"] == "none"
        if isinstance(model["attention"], dict) and not isinstance(model["attention"]["scale"], dict):
            model["attention"]["scale"] = model["attention"]["scale"] == "adaptive"
        shape = [training.batch_size, training.accumulation, training.optimizer.name, training.dtype]
        return json.dumps([model, shape, vocabulary(config.corpus), threads], sort_keys=True)


def study_costs() -> list[StudyCost]:
    """The cost of every named study at every budget it has.

    A training step of each different model is timed now, with the threads that the study chooses; an evaluation is
    taken to be a third of a step for each token.
    Trainings run one after the other, trials of tuning included. Probes are scaled from the machine on which they were
    timed, by the base's step.
    """
    paces, found = Paces(), list[StudyCost]()
    for name in study_names():
        study = study_named(name)
        found += [_cost(study, budget, paces) for budget in study.budgets]
    return found


def _cost(study: Study, budget: BudgetName, paces: Paces) -> StudyCost:
    chosen = study.at(budget)
    base = configure(study.base, overrides=[study.budgets[budget].changes])
    arms, threads = resolve(chosen, base, vocabulary), paces.threads(base)
    seconds, runs, flops = SECONDS_OF_A_STUDY, 0.0, 0
    for arm in arms:
        a_step, tried = paces.of(arm.config, threads), _trials(chosen, arm)
        a_token = FORWARD * a_step / arm.config.tokens_per_step
        once = SECONDS_OF_A_RUN + arm.config.training.steps * a_step + a_token * _measured(arm.config)
        seconds += (tried + len(chosen.seeds)) * once + len(chosen.seeds) * a_token * _finally(arm.config)
        runs, flops = runs + tried + len(chosen.seeds), flops + round((tried + len(chosen.seeds)) * arm.flops)
    usual = configure("study")
    slower = REFERENCE * paces.of(usual, threads) / step_flops(usual, CHARACTERS)
    for name in chosen.probes:
        probe = probe_named(name)
        times = len(arms) * len(chosen.seeds) if probe.of_runs else 1
        seconds += times * probe.seconds[BUDGETS.index(budget)] * slower
    return StudyCost(study.name, study.question, budget, round(runs), flops, seconds / 60)


def _trials(study: Study, arm: ResolvedArm) -> float:
    """Runs in which values of the arm are tried, on the average."""
    planned = len(rows(study.tuned(arm.arm), arm.config))
    return planned + FURTHER if planned > 1 else float(planned)


def _measured(config: RunConfig) -> float:
    """Tokens of all evaluations while a run is trained."""
    training = config.training
    most = training.evaluation_tokens or FINAL_TOKENS
    passes = -(-training.steps // training.evaluate_every)
    return passes * sum(min(most, _tokens(config, part)) for part in HELD_OUT)


def _finally(config: RunConfig) -> float:
    """Tokens of the whole test part, where only some of it is measured while a run is trained."""
    whole, most = _tokens(config, "test"), config.training.evaluation_tokens
    return 0.0 if most is None or most >= whole else min(whole, FINAL_TOKENS)


def _tokens(config: RunConfig, part: str) -> float:
    return HELD_OUT[part] / PER_TOKEN[config.corpus.tokenizer.name]


def _model(config: RunConfig) -> Transformer:
    return build_model(config, vocabulary(config.corpus))


def vocabulary(corpus: CorpusConfig) -> int:
    """Tokens of a text that need not be at hand."""
    if isinstance(corpus.tokenizer, BPEConfig):
        return corpus.tokenizer.vocab_size
    return 256 if isinstance(corpus.tokenizer, ByteConfig) else CHARACTERS
