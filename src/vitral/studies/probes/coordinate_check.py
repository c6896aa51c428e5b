"""The probe `coordinate-check`: how far a few steps move activations, by width and parametrisation."""

import math
from itertools import product
from typing import Any

import torch

from vitral.core.config import merge
from vitral.core.devices import ordered_sums
from vitral.core.language import N_, _, number
from vitral.core.streams import numpy_stream
from vitral.inspection import activation_movements
from vitral.inspection.windows import read_windows, window_starts
from vitral.model import Transformer, next_token_loss
from vitral.studies.probe import Axis, Check, Curve, Lines, Plain, Probe, Rows, Setting, StudyResult, View
from vitral.training import RunConfig
from vitral.training.optimizers import build_optimizer

WIDER = ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8, 16))
"""Widths in base widths."""
STEPS, ROWS, SEEDS = 4, 16, 3
KINDS = {"standard": N_("standard parametrisation"), "mup": N_("parametrisation muP")}
FLAT, STEEP = 0.1, 0.3
"""Exponents of the width at most under muP, and at least under the standard parametrisation."""


def measure(setting: Setting) -> Plain:
    """Movements of the last block's outputs and of the logits, in the mean over models, by kind and width.

    The steps are made without dropout, so that they depend on nothing but the seed.
    """
    config = setting.base
    widths = [config.model.d_model * times for times in setting.size(*WIDER)]
    return {
        "steps": STEPS,
        "rate": config.training.optimizer.learning_rate,
        "widths": widths,
        "moved": {kind: [_moved(setting, kind, width) for width in widths] for kind in KINDS},
    }


def configured(base: RunConfig, kind: str, width: int) -> RunConfig:
    """The base configuration at another width: under muP with its parametrisation, and scores that shrink as 1/d_k."""
    model: dict[str, Any] = {"d_model": width}
    if kind == "mup":
        heads, own = base.model.num_heads, base.model.d_model
        model["parametrisation"] = {"name": "mup", "base_width": own}
        model["attention"] = {"scale": math.sqrt(own / heads) / (width / heads)}
    return RunConfig.parse(merge(base.plain(), {"model": model}))


def _moved(setting: Setting, kind: str, width: int) -> dict[str, float]:
    config, data = configured(setting.base, kind, width), setting.dataset
    split, time, names = data.splits["train"], config.model.context_length, _names(config)
    starts = window_starts(split, time + 1, None, stride=time + 1)
    found = dict.fromkeys(names, 0.0)
    for seed in range(SEEDS):
        drawn = numpy_stream(setting.seed, "coordinates", seed).choice(starts, min(ROWS, len(starts)), replace=False)
        tokens = read_windows(split, drawn, time + 1)
        before, model = (Transformer(config.model, data.tokenizer.vocab_size, seed=seed).eval() for _ in range(2))
        optimizer = build_optimizer(model, config.training.optimizer)
        for _step in range(STEPS):
            optimizer.zero_grad()
            with ordered_sums(tokens.device):
                next_token_loss(model(tokens[:, :-1]), tokens[:, 1:], model.mask).backward()
            optimizer.step()
        moved = activation_movements(before, model, tokens[:, :-1])
        found = {name: found[name] + moved.get(name, math.inf) / SEEDS for name in names}
    return found


def _names(config: RunConfig) -> tuple[str, ...]:
    last = f"blocks.{config.model.num_layers - 1}"
    return (f"{last}.attn.out", f"{last}.mlp.out", "logits")


def exponent(widths: list[int], values: list[float]) -> float:
    """The slope of the least squares line through (log width, log value).

    >>> round(exponent([1, 2, 4], [3.0, 6.0, 12.0]), 6)
    1.0
    """
    x, y = (torch.tensor(each, dtype=torch.float64).log() for each in (widths, values))
    x = x - x.mean()
    return float((x @ (y - y.mean())) / (x @ x))


def _view(result: StudyResult, measured: Plain) -> View:
    """Movements by width, and the exponents beside what theory states."""
    widths, moved = measured["widths"], measured["moved"]
    how = _(
        "How far {steps} steps of AdamW at the learning rate {rate} move the outputs of the last block and the logits: "
        "the root mean square over positions and coordinates, from the first models of {seeds} seeds. Theory: the same "
        "at every width under muP (an exponent of 0), growing with the width under the standard parametrisation (Yang "
        "et al. 2022, figure 5).",
        steps=measured["steps"],
        rate=number(measured["rate"], "g"),
        seeds=SEEDS,
    )
    rows, checks = [], []
    for kind, name in product(KINDS, moved["mup"][0]):
        title, values = _(KINDS[kind]), [one[name] for one in moved[kind]]
        power = exponent(widths, values)
        rows.append((title, name, *(number(value, ".3g") for value in values), number(power, "+.2f")))
        low, high = (None, FLAT) if kind == "mup" else (STEEP, None)
        expected = _("at most {most:g}", most=FLAT) if kind == "mup" else _("at least {least:g}", least=STEEP)
        what = _("exponent of the width of the movement of {name}", name=name)
        checks.append(Check(title, what, power, low, high, expected, digits=2))
    columns = (_("parametrisation"), _("activation"), *(_("width {width}", width=width) for width in widths))
    axes = Axis(_("width"), log=True, ticks=widths), Axis(_("movement of the logits"), log=True)
    curves = [Curve(_(title), widths, [one["logits"] for one in moved[kind]]) for kind, title in KINDS.items()]
    table = Rows(_("Movement by width, and its exponent"), (*columns, _("exponent")), rows, prose=(1,))
    return View(how, [table], Lines(_("Movement of the logits by width"), *axes, curves), checks=checks)


PROBE = Probe("coordinate-check", N_("Coordinate check"), measure, more=_view, seconds=(3, 3, 20), of_runs=False)
