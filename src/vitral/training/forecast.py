"""Parameters, memory, speed and hours of a training that has not begun, on machines that are not here."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from vitral.core.config import nearest, read_toml
from vitral.core.devices import resolve_device
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.core.machine import memory_limit
from vitral.core.shown import Shown, Tabular
from vitral.model import count_parameters
from vitral.runs import RunConfig
from vitral.training.costs import step_flops, training_bytes
from vitral.training.plans import time_steps
from vitral.training.run import build_model

Range = tuple[float, float]
"""The least and the most."""
WIDE = 1024
"""Columns of a matrix below which published shares of the peak say nothing."""
MEASURED = 0.85
"""Several accelerators' least share of the measured speed of one, times their number: on 128 H100 torchtitan loses
2.3 %."""


@dataclass(frozen=True)
class Accelerator:
    """A kind of accelerator.

    Attributes:
        kind: its short name.
        name: its name.
        flops: bfloat16 operations a second with dense matrices.
        memory: bytes.
        utilisation: least and most share of `flops` that published trainings reach on this kind; None: none is known.
    """

    kind: str
    name: str
    flops: float
    memory: float
    utilisation: Range | None = None


def accelerators() -> dict[str, Accelerator]:
    """The kinds that `forecast` knows, by their short names."""
    known = read_toml(Path(__file__).with_name("accelerators.toml"))
    return {kind: Accelerator(kind, **given) for kind, given in known.items()}


@dataclass(frozen=True, repr=False)
class Forecast(Shown, Tabular):
    """What a training needs on machines that are not here. A range is (low, high), or None where the speed is unknown.

    Attributes:
        name: of the preset or configuration.
        vocab_size: tokens in the vocabulary.
        parameters: of the model.
        ranks: accelerators.
        accelerator: their kind.
        tokens: that the whole training reads.
        tokens_per_step: of one step on all accelerators.
        flops_per_token: operations of a training step, divided by its tokens.
        memory: bytes that one accelerator needs at least (`vitral.training.costs`).
        tokens_per_second: on all accelerators together, a range.
        hours: of the whole training, a range.
        notes: what the numbers rest on, one sentence each.
    """

    name: str
    vocab_size: int
    parameters: int
    ranks: int
    accelerator: Accelerator
    tokens: int
    tokens_per_step: int
    flops_per_token: float
    memory: int
    tokens_per_second: Range | None
    hours: Range | None
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a step fits into the memory of one accelerator."""
        return self.memory <= self.accelerator.memory

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**asdict(self), "fits": self.fits, "notes": list(self.notes)}

    def records(self) -> list[dict[str, Any]]:
        """One row for each quantity that is known: its least and its most."""
        rows = [
            (N_("memory of one"), N_("bytes"), (self.memory, self.memory)),
            (N_("operations per token"), N_("FLOPs"), (self.flops_per_token, self.flops_per_token)),
            (N_("tokens per second"), N_("tokens/s"), self.tokens_per_second),
            (N_("training"), N_("hours"), self.hours),
        ]
        return [{"quantity": name, "unit": unit, "low": of[0], "high": of[1]} for name, unit, of in rows if of]


def forecast_of(name: str, config: RunConfig, vocab_size: int, *, gpus: int, kind: str, measure: bool) -> Forecast:
    """Memory, tokens per second and hours of a training on several accelerators, before one is rented.

    The batches of a step (`training.accumulation`) are shared out among the accelerators, and weights, gradients and
    optimizer too. Operations are those of `step_flops`; the speed is a share of the accelerators' peak that published
    trainings reach on this kind, on others where none is known, or that of a few steps timed here; it is unknown for a
    model narrower than theirs.

    Args:
        name: of the configuration.
        config: of the training.
        vocab_size: tokens in the vocabulary.
        gpus: number of accelerators.
        kind: one of `accelerators()`.
        measure: time a few steps on this machine's device instead, and forecast that many of them.

    Raises:
        UsageError: an unknown kind, or batches that cannot be shared out evenly.
    """
    known, batches, notes = accelerators(), config.training.accumulation, list[str]()
    a_step = config.tokens_per_step
    if batches % gpus:
        more = gpus * -(-batches // gpus)
        raise UsageError(
            "forecast: training.accumulation = {accumulation} batches cannot be shared out evenly among {gpus}; "
            "set training.accumulation = {multiple} (then a step has {tokens:,} tokens)",
            accumulation=batches,
            gpus=gpus,
            multiple=more,
            tokens=more * a_step // batches,
        )
    if measure:
        accelerator, shares, sentence = _measured(config, vocab_size)
    elif kind in known:
        if config.training.dtype != "bfloat16":
            config = config.with_training(dtype="bfloat16")
            notes.append(_('Counted in bfloat16, which accelerators are made for: set training.dtype = "bfloat16".'))
        accelerator = known[kind]
        shares, sentence = _published(config.model.d_model, accelerator, known)
    else:
        raise UsageError(
            "forecast: kind {kind!r} is unknown; {hint}",
            kind=kind,
            hint=nearest(kind, known),
        )
    tokens, per_token = config.training.steps * a_step, step_flops(config, vocab_size) / a_step
    peak = gpus * accelerator.flops / per_token
    speeds = shares and (shares[0] * peak, shares[1] * peak)
    return Forecast(
        name=name,
        vocab_size=vocab_size,
        parameters=count_parameters(config.model, vocab_size),
        ranks=gpus,
        accelerator=accelerator,
        tokens=tokens,
        tokens_per_step=a_step,
        flops_per_token=per_token,
        memory=training_bytes(config, vocab_size, gpus, device=None if measure else "cuda"),
        tokens_per_second=speeds,
        hours=speeds and (tokens / speeds[1] / 3600, tokens / speeds[0] / 3600),
        notes=(*notes, sentence),
    )


def _published(columns: int, kind: Accelerator, known: Mapping[str, Accelerator]) -> tuple[Range | None, str]:
    """The shares of the peak that published trainings reach, and the sentence that says what they rest on."""
    if columns < WIDE:
        return None, _(
            "Speed: unknown. Published speeds are of matrices of at least 1,600 columns, and say nothing of a model "
            "with d_model = {columns}: run this with --measure on one of the accelerators.",
            columns=columns,
        )
    published = {one.kind: one.utilisation for one in known.values() if one.utilisation}
    if kind.utilisation:
        published = {kind.kind: kind.utilisation}
    lows, highs = zip(*published.values(), strict=True)
    sentence = N_(
        "Speed: {low:.0%} to {high:.0%} of the peak, as published trainings reach on {kinds}; --measure times this "
        "machine's device instead."
    )
    shares = min(lows), max(highs)
    return shares, _(sentence, low=shares[0], high=shares[1], kinds=", ".join(published))


def _measured(config: RunConfig, vocab_size: int) -> tuple[Accelerator, Range, str]:
    """This machine's device as a kind, the share of its speed that several reach, and what the numbers rest on."""
    device = resolve_device(config.training.device)
    one = config.with_training(accumulation=1)
    speed = one.tokens_per_step / time_steps(one, lambda each: build_model(each, vocab_size))
    on_gpu = device.type == "cuda"
    memory = torch.cuda.get_device_properties(device).total_memory if on_gpu else memory_limit() or math.inf
    sentence = _(
        "Speed: {speed:,.0f} tokens/s of one, in a few steps timed here; each of several reaches {low:.0%} "
        "to 100% of it.",
        speed=speed,
        low=MEASURED,
    )
    flops = speed * step_flops(config, vocab_size) / config.tokens_per_step
    return Accelerator("here", str(device), flops, memory), (MEASURED, 1.0), sentence
