"""Arms with their whole configurations: changes merged into the base, widths and steps matched, operations counted."""

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from vitral.core.config import differences, merge
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.data.tokenizers import Tokenizer
from vitral.model import ModelConfig, cost, count_parameters
from vitral.runs import SealedRun, enter
from vitral.runs.objectives import predicts_next
from vitral.studies.design import Arm, Study, Unit
from vitral.training import RunConfig
from vitral.training.costs import step_flops

SAME_TEST_TEXT = ("source", "task", "split", "works", "newlines", "separator", "encoding", "field", "glob")
"""Keys of the corpus that decide the test split; compared arms share them even where arms vary the text."""
WIDEST = 2**24
LEAST_FURTHER_STEPS = 2
"""Of an arm that begins from another and is matched by operations."""


@dataclass(frozen=True)
class ResolvedArm:
    """An arm with its whole configuration.

    Attributes:
        arm: as designed.
        config: its whole configuration; each run replaces the seed (`seeded`).
        vocab_size: of its tokenizer.
        draws_text: whether the seed draws the text too.
        inherited_flops: floating-point operations of the trainings whose weights a run begins from.
    """

    arm: Arm
    config: RunConfig
    vocab_size: int
    draws_text: bool = False
    inherited_flops: int = 0

    @cached_property
    def num_parameters(self) -> int:
        """Learned numbers."""
        return count_parameters(self.config.model, self.vocab_size)

    @cached_property
    def flops_per_token(self) -> int:
        """Floating-point operations of one training step, per token, forward and backward."""
        costs = cost(self.config.model, self.vocab_size)
        return costs.forward_flops + costs.backward_flops

    def seeded(self, seed: int) -> RunConfig:
        """The whole configuration of its run from a seed."""
        drawn = {"corpus": {"draw": seed}} if self.draws_text and self.config.corpus.is_drawn else {}
        return RunConfig.parse(merge(self.config.plain(), {"seed": seed, **drawn}))

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of a run's own training, the optimizer's included."""
        return self.config.training.steps * step_flops(self.config, self.vocab_size)

    @property
    def all_flops(self) -> int:
        """Floating-point operations of a run's training and of those whose weights it begins from."""
        return self.inherited_flops + self.flops


def tokens_trained(config: Mapping[str, Any]) -> int:
    """Tokens that a run of this configuration, as plain data, is trained on."""
    training, time = config["training"], config["model"]["context_length"]
    return training["steps"] * training["batch_size"] * training["accumulation"] * time


def is_causal_lm(config: Mapping[str, Any]) -> bool:
    """Whether a run of this plain configuration predicts the next token from those before it, and nothing else."""
    training = config["training"]
    return predicts_next(training.get("objective", "next-token")) and not training["allow_leak"]


def resolve(study: Study, base: RunConfig, vocab_size: int | Callable[[CorpusConfig], int]) -> tuple[ResolvedArm, ...]:
    """Every arm's whole configuration, widths or steps chosen where an arm asks to be matched.

    Args:
        study: the design.
        base: configuration of the base arm.
        vocab_size: of the tokenizer, or a function of the text's configuration that returns it.

    Raises:
        UsageError: an arm's changes do not make a configuration, do not differ from the base, or make two arms the
            same.
    """
    vocab_of = vocab_size if callable(vocab_size) else lambda _: vocab_size
    target = count_parameters(base.model, vocab_of(base.corpus))
    resolved: list[ResolvedArm] = []
    for arm in study.arms:
        where = _("study {study}, arm {arm}", study=study.name, arm=arm.name)
        config = RunConfig.parse(merge(beginning(arm, base.plain()), arm.changes), where)
        _require_same_test(study.unit, arm, base, config, where)
        if study.draws_text and isinstance(config.corpus.tokenizer, BPEConfig):
            raise UsageError(
                "{where}: draws_text gives each seed its own training text, from which byte pairs would learn other "
                'tokens; set corpus.tokenizer = "byte"',
                where=where,
            )
        vocab = vocab_of(config.corpus)
        if config.training.plan != "as-written" or config.training.minutes is not None:
            raise UsageError("{where}: training.plan and minutes are the base's, for all arms", where=where)
        if arm.match == "parameters":
            model = config.model
            mixes = model.attention != "none" or model.recurrence is not None
            key = "d_model" if model.feed_forward == "none" and mixes else "d_ff"
            width = matched_width(model, target, vocab, key)
            config = RunConfig.parse(merge(config.plain(), {"model": {key: width}}), where)
        source = source_of(arm)
        if source is not None:
            _require_same_model(config, str(arm.run), source.config, where)
        parent = next((other for other in resolved if other.arm.name == arm.init_from), None)
        if parent is not None:
            _require_same_model(config, parent.arm.name, parent.config, where)
        inherited = 0 if parent is None else parent.all_flops
        if arm.match == "flops":
            config = matched_steps(config, resolved[0].flops, vocab, inherited, where)
        for other in resolved:
            if config == other.config and (arm.init_from, arm.run) == (other.arm.init_from, other.arm.run):
                raise UsageError(
                    "study {study}: arms {one!r} and {other!r} have the same configuration",
                    study=study.name,
                    one=other.arm.name,
                    other=arm.name,
                )
        resolved.append(ResolvedArm(arm, config, vocab, study.draws_text, inherited))
    return tuple(resolved)


def _require_same_test(unit: Unit, arm: Arm, base: RunConfig, config: RunConfig, where: str) -> None:
    """Refuse a compared arm with another test text than the base's or, per token, another tokenizer.

    Raises:
        UsageError: names the key that differs.
    """
    if not arm.compared:
        return
    one, other = base.corpus.plain(), config.corpus.plain()
    for key in (*SAME_TEST_TEXT, *(("tokenizer",) if unit == "nats per token" else ())):
        if one.get(key) != other.get(key):
            advice = 'unit = "bits per character"' if key == "tokenizer" else "compared = false"
            raise UsageError(
                "{where}: corpus.{key} is not the base's, so losses cannot be compared in {unit}; set {advice}",
                where=where,
                key=key,
                unit=_(unit),
                advice=advice,
            )


def _require_same_model(config: RunConfig, parent: str, former: RunConfig, where: str) -> None:
    """Refuse another model than the one whose weights an arm begins from.

    Raises:
        UsageError: the models differ in more than what matters in training only.
    """
    free = ("dropout", "initialisation")
    own, other = ({**each.model.plain(), **dict.fromkeys(free)} for each in (config, former))
    if difference := first_difference(other, own, "model."):
        raise UsageError(
            "{where}: begins from the weights of {parent}, which is another model: {difference}",
            where=where,
            parent=parent,
            difference=difference,
        )


def matched_steps(config: RunConfig, flops: int, vocab_size: int, inherited: int, where: str) -> RunConfig:
    """The configuration with the number of steps whose operations, the inherited ones included, are nearest to `flops`.

    The interval between evaluations stays the same share of the steps.

    Raises:
        UsageError: hardly a step is left; `where` names the arm.
    """
    before, own = config.training.steps, step_flops(config, vocab_size)
    steps = round((flops - inherited) / own)
    if steps < (LEAST_FURTHER_STEPS if inherited else 1):
        raise UsageError(
            '{where}: match = "flops" leaves it {steps} steps: the base has {flops:.2e} operations, the trainings that '
            "it begins from {inherited:.2e}, a step of its own {own:.2e}; give the base more steps, or leave match out",
            where=where,
            steps=max(0, steps),
            flops=float(flops),
            inherited=float(inherited),
            own=float(own),
        )
    every = max(1, round(config.training.evaluate_every * steps / before))
    return RunConfig.parse(merge(config.plain(), {"training": {"steps": steps, "evaluate_every": every}}), where)


def matched_width(model: ModelConfig, target: int, vocab_size: int, key: Literal["d_ff", "d_model"] = "d_ff") -> int:
    """The width with which the model's number of parameters is nearest to `target`; the smaller of two as near.

    The number of parameters increases with the width, so bisection finds it. A d_model is a multiple of what the heads
    allow.

    Raises:
        UsageError: the width changes nothing, or none of WIDEST units or less reaches the target.
    """
    pairs = 1 if model.rotary is None else math.ceil(2 / model.rotary.fraction)
    unit = 1 if key == "d_ff" or "d_head" in model.plain() else model.num_heads * pairs

    def count(width: int) -> int:
        return count_parameters(ModelConfig.parse(model.plain() | {key: unit * width}), vocab_size)

    if count(1) == count(2):
        raise UsageError("an arm without a feed-forward has no width to match the base's parameters with")
    enough = 1 + bisect_left(range(1, WIDEST + 1), target, key=count)
    if enough > WIDEST:
        raise UsageError("no feed-forward is wide enough to match {target} parameters", target=target)
    return unit * min((max(1, enough - 1), enough), key=lambda width: (abs(count(width) - target), width))


def first_difference(recorded: Mapping[str, Any], given: Mapping[str, Any], path: str = "") -> str:
    """The first difference of two nested plain structures, in words; empty if there is none.

    >>> first_difference({"model": {"d_ff": 5}}, {"model": {"d_ff": 7}})
    'model.d_ff is 5 there and 7 here'
    """
    for where, one, other in differences(recorded, given, path):
        return _("{key} is {one} there and {other} here", key=where, one=_shown(one), other=_shown(other))
    return ""


def _shown(value: Any) -> str:
    text = _("not set") if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---------------------------------------------------------------- runs outside a study that arms begin from

TOKENS = ("tokenizer", "specials")
"""Keys of the corpus that are those of the run."""


def source_of(arm: Arm) -> SealedRun | None:
    """The run outside the study that an arm begins from; None if there is none.

    Raises:
        UsageError: the folder is no run.
    """
    return enter(arm.begun, lambda line: None) if arm.begun else None


def beginning(arm: Arm, base: Mapping[str, Any]) -> dict[str, Any]:
    """The base's configuration with the model and the tokens of the run that an arm begins from."""
    source = source_of(arm)
    if source is None:
        return dict(base)
    corpus = {key: value for key, value in base["corpus"].items() if key not in TOKENS}
    corpus["tokenizer"] = source.config.corpus.plain()["tokenizer"]
    if specials := tuple(source.tokenizer.declared):
        corpus["specials"] = list(specials)
    return {**base, "model": source.config.model.plain(), "corpus": corpus}


def tokenizers_of(study: Study) -> dict[str, Tokenizer]:
    """The tokenizers of the runs that arms begin from, by `tokens_key`; every arm with these tokens uses them.

    Raises:
        UsageError: two runs have different tokenizers of one kind, so that losses could not be compared.
    """
    tokenizers: dict[str, Tokenizer] = {}
    for arm in study.arms:
        source = source_of(arm)
        if source is None:
            continue
        former = tokenizers.setdefault(tokens_key(source.config.corpus), source.tokenizer)
        if former.plain() != source.tokenizer.plain():
            raise UsageError(
                "study {study}, arm {arm}: the tokenizer of {run} is not that of the run of another arm; put them in "
                "two studies",
                study=study.name,
                arm=arm.name,
                run=arm.run,
            )
    return tokenizers


def tokens_key(config: CorpusConfig) -> str:
    """What a configuration says of its tokens."""
    plain = config.plain()
    return json.dumps({key: plain.get(key) or None for key in TOKENS}, sort_keys=True)
