"""Forecasts: what a training needs on machines that are not here."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from vitral.core.checked import Count, checked
from vitral.core.config import nearest
from vitral.core.devices import resolve_device
from vitral.core.errors import UsageError
from vitral.core.language import N_, in_language
from vitral.core.machine import memory_limit
from vitral.lab.before_training import configured
from vitral.lab.predicted_loss import predicted_loss
from vitral.lab.run import Run
from vitral.model import Transformer, count_parameters
from vitral.reports.forecast import STORAGE, WIDE, Accelerator, Forecast, Range
from vitral.runs import RunConfig
from vitral.training.optimizer_cost import step_flops
from vitral.training.sharded_memory import rank_bytes
from vitral.training.trials import time_pace

HERE = "here"
MEASURED = (0.85, 1.0)
"""Several ranks' share of the measured speed of one, times their number: on 128 H100 torchtitan loses 2.3 %."""


def accelerators() -> dict[str, Accelerator]:
    """The kinds that `forecast` knows, by their short names."""
    told = tomllib.loads(resources.files("vitral.lab").joinpath("accelerators.toml").read_text(encoding="utf-8"))
    return {
        kind: Accelerator(kind=kind, utilisation=_range(given.pop("utilisation", None)), **given)
        for kind, given in told.items()
    }


def _range(found: Sequence[float] | None) -> Range | None:
    return None if found is None else (found[0], found[1])


@checked(first=True)
def forecast(
    start: str | Path | Run = "shakespeare",
    *,
    gpus: Count = 1,
    kind: str = "h100",
    price: float | None = None,
    measure: bool = False,
    study: str | Path | None = None,
    **chosen: Any,
) -> Forecast:
    """Memory, tokens per second, hours and price of a training on several accelerators, before one is rented.

    The batches of a step (`training.accumulation`) are shared out among the accelerators. Operations are those of
    `step_flops`; the speed is a share of the accelerators' peak that published trainings reach on this kind, on others
    where none is known, or that of a few steps timed here; it is unknown for a model narrower than theirs. Memory is
    PyTorch's own count of two steps on tensors without data, all weights sharded. Each accelerator gathers the weights
    for the forward and for the backward pass of each of its batches and shares out the gradients: 2 · 2 N + 4 N bytes
    for N parameters in bfloat16, times (W - 1) / W.

    Args:
        start: a preset, a `.toml` file, a text or a run, as of `count`.
        gpus: number of accelerators.
        kind: one of `accelerators()`.
        price: of one accelerator for one hour, in any currency.
        measure: time a few steps on this machine's device instead, and forecast that many of them.
        study: folder of a finished scaling study, whose laws predict the loss.
        chosen: everything else that `count` takes.

    Raises:
        UsageError: an unknown kind, a configuration that `count` refuses, batches that cannot be shared out evenly, a
            price below 0, or a folder without a finished scaling study of such tokens.
    """
    name, config, vocab_size, _ = configured(start, **chosen)
    known = accelerators()
    if not measure and kind not in known:
        raise UsageError(
            "forecast: kind {kind!r} is unknown{nearest}; known: {known}",
            kind=kind,
            nearest=nearest(kind, known),
            known=", ".join(known),
        )
    if price is not None and not (0 <= price < math.inf):
        raise UsageError("forecast: price {price!r}: expected a number of at least 0", price=price)
    training = config.training
    if training.accumulation % gpus:
        raise UsageError(
            "forecast: training.accumulation = {accumulation} batches cannot be shared out evenly among {gpus}; "
            "set training.accumulation = {multiple} (then a step has {tokens:,} tokens)",
            accumulation=training.accumulation,
            gpus=gpus,
            multiple=gpus * -(-training.accumulation // gpus),
            tokens=gpus * -(-training.accumulation // gpus) * training.batch_size * config.model.context_length,
        )
    with in_language("en"):  # retold in the language of whoever reads it
        loss, notes = (None, []) if study is None else predicted_loss(Path(study), config, vocab_size)
        found = _forecast(name, config, vocab_size, gpus, None if measure else known[kind], price)
        return replace(found, loss=loss, notes=(*found.notes, *notes))


def _forecast(
    name: str, config: RunConfig, vocab_size: int, gpus: int, known: Accelerator | None, price: float | None
) -> Forecast:
    notes: list[str] = []
    if known is not None and config.training.dtype != "bfloat16":
        config = config.model_copy(update={"training": config.training.model_copy(update={"dtype": "bfloat16"})})
        notes.append(N_('Counted in bfloat16, which accelerators are made for: set training.dtype = "bfloat16".'))
    tokens_per_step, rounds = config.tokens_per_step, config.training.accumulation // gpus
    parameters, flops = count_parameters(config.model, vocab_size), step_flops(config, vocab_size) / tokens_per_step
    if known is None:
        accelerator, speed = _measured(config, vocab_size, flops)
        speeds: Range | None = (MEASURED[0] * gpus * speed, gpus * speed)
        sentence = N_(
            "Speed: {speed:,.0f} tokens/s of one, in a few steps timed here; each of several reaches {low:.0%} "
            "to 100% of it."
        )
        notes.append(sentence.format(speed=speed, low=MEASURED[0]))
    elif config.model.d_model < WIDE:
        accelerator, speeds = known, None
        sentence = N_(
            "Speed: unknown. Published speeds are of matrices of at least 1,600 columns, and say nothing of a model "
            "with d_model = {columns}: run this with --measure on one of the accelerators."
        )
        notes.append(sentence.format(columns=config.model.d_model))
    else:
        accelerator = known
        peak, (shares, sentence) = gpus * accelerator.flops / flops, _shares(accelerator)
        speeds = (shares[0] * peak, shares[1] * peak)
        notes.append(sentence)
    size = 2 if config.training.dtype == "bfloat16" else 4
    sent = rounds * (2 * size + 4) * parameters * (gpus - 1) / gpus
    rate = accelerator.link if gpus <= accelerator.per_node else accelerator.network
    seconds = sent / rate if sent else 0.0
    steps = None
    if speeds is not None:
        steps = (max(tokens_per_step / speeds[1], seconds), max(tokens_per_step / speeds[0], seconds))
        if seconds > tokens_per_step / speeds[1]:
            notes.append(
                N_("The network is slower than the fastest computation, and bounds the speed: larger batches help.")
            )
    hours = _times(config.training.steps / 3600, steps)
    kept = 3 * 4 * parameters
    return Forecast(
        name=name,
        vocab_size=vocab_size,
        parameters=parameters,
        ranks=gpus,
        accelerator=accelerator,
        tokens=config.training.steps * tokens_per_step,
        tokens_per_step=tokens_per_step,
        flops_per_token=flops,
        tokens_per_second=None if steps is None else (tokens_per_step / steps[1], tokens_per_step / steps[0]),
        hours=hours,
        price=None if price is None else _times(price * gpus, hours),
        memory=rank_bytes(config, vocab_size, gpus),
        network_bytes=sent,
        network_seconds=seconds,
        step_seconds=steps,
        checkpoint_bytes=kept,
        checkpoint_seconds=kept / (STORAGE * -(-gpus // accelerator.per_node)),
        notes=tuple(notes),
    )


def _shares(accelerator: Accelerator) -> tuple[Range, str]:
    """The least and the most share of the peak, and on which trainings that rests."""
    if accelerator.utilisation is not None:
        low, high = accelerator.utilisation
        sentence = N_(
            "Speed: {low:.0%} to {high:.0%} of the peak, as published trainings reach on this kind of accelerator; "
            "--measure times this machine's device instead."
        )
        return (low, high), sentence.format(low=low, high=high)
    known = {one.kind: one.utilisation for one in accelerators().values() if one.utilisation is not None}
    low, high = min(low for low, _ in known.values()), max(high for _, high in known.values())
    sentence = N_(
        "Speed: {low:.0%} to {high:.0%} of the peak. No published training on this kind of accelerator is known here: "
        "the range is that of others ({kinds}), and --measure on such an accelerator finds its own."
    )
    return (low, high), sentence.format(low=low, high=high, kinds=", ".join(known))


def _times(factor: float, found: Range | None) -> Range | None:
    return None if found is None else (factor * found[0], factor * found[1])


def _measured(config: RunConfig, vocab_size: int, flops: float) -> tuple[Accelerator, float]:
    """This machine's device as a kind, and its tokens per second."""
    one = config.model_copy(update={"training": config.training.model_copy(update={"accumulation": 1})})
    device = resolve_device(config.training.device)
    pace = time_pace(one, lambda each: Transformer(each.model, vocab_size).to(device))
    speed = one.tokens_per_step / pace.step
    memory = memory_limit() or math.inf
    if device.type == "cuda":
        import torch

        memory = torch.cuda.get_device_properties(device).total_memory
    return Accelerator(HERE, str(device), speed * flops, memory, 10e9, 1e9, 1), speed
