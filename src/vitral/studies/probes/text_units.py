"""Tokenizers: the size of their tokens, the text that a window covers, and the loss at equal compute."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vitral.core.language import N_, _
from vitral.inspection.text_units import text_units
from vitral.model import ModelConfig
from vitral.studies.claims import to_fixed
from vitral.studies.losses import loss_quantity
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Check,
    Comparison,
    Lines,
    Means,
    Plain,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    curve_over,
    with_losses,
)
from vitral.studies.scaling_grid import KINDS_OF_TOKENS

EQUAL_COMPUTE = 2.0
"""Percent within which the operations of an arm's training equal the base's."""
FAIR_UNIT = "bits per character"
"""The unit in which losses of different tokens can be compared."""
UNITS = (
    Quantity(N_("vocabulary"), "vocab_size", digits=0),
    Quantity(N_("parameters"), "parameters", digits=0),
    Quantity(N_("operations of the base"), "operations", "%", digits=0),
    Quantity(N_("characters per token"), "characters_per_token", digits=2),
    Quantity(N_("window"), "context_characters", "characters", digits=0),
    Quantity(N_("parameters in embedding and head"), lambda run: 100 * run["token_share"], "%", digits=0),
    Quantity(N_("trained on"), "tokens", "tokens", digits=0),
    Quantity(N_("trained on"), "characters", "characters", digits=0),
    Quantity(N_("passes"), "passes", digits=2),
    Quantity(N_("median token seen"), "median_seen", N_("times"), digits=0),
)


def measure(trained: Trained) -> Plain:
    """See `text_units`; "tokens" are those of the run's training."""
    return text_units(ModelConfig.parse(trained.run.config["model"]), trained.dataset, trained.num_tokens)


def _view(result: StudyResult, arms: Arms) -> View:
    """The units by arm; where losses are comparable, the longest tokens against the others, and the slope."""
    arms, loss = _with_sizes(result, with_losses(result, arms)), replace(loss_quantity(result), source="loss")
    if not arms:
        return View()
    fair, unit = result.study.unit == FAIR_UNIT, _(result.study.unit)
    caption = _(
        "Tokens; losses per token of different tokens do not compare. Means over seeds; losses in {unit}.", unit=unit
    )
    if fair:
        caption = _("Tokens, and the loss with them. Means over seeds; losses in {unit}.", unit=unit)
    table = Means(arms, (*UNITS, loss), caption)
    checks = [_compute(result, arm) for arm in arms[1:] if result.arm(arm.name).arm.match == "flops"]
    arms = [arm for arm in arms if _only_tokens(result, arm)]
    if not fair or len(arms) < 2:
        return View(tables=[table], checks=checks)
    longest = max(arms, key=lambda arm: arm.first["characters_per_token"])
    others = [arm for arm in arms if arm is not longest]
    pairs = [pair for arm in others for pair in Against([loss]).of(result, [arm, longest])]
    slope = _slope([arm for arm in arms if _kind(arm) == "bpe"], loss)
    axes = Axis(_("vocabulary (tokens)"), log=True), Axis(_("test loss ({unit})", unit=unit))
    members = {kind: [arm for arm in arms if _kind(arm) == kind] for kind in map(_kind, arms)}
    curves = [curve_over(_(KINDS_OF_TOKENS.get(kind, kind)), each, UNITS[0], loss) for kind, each in members.items()]
    return View("", [table], Lines(_("Loss at equal compute"), *axes, curves), [*pairs, *slope], checks)


def _with_sizes(result: StudyResult, arms: Arms) -> list[ArmMeasures]:
    """The arms with two more numbers for each run: parameters, and operations in percent of the base's."""
    found = []
    for arm in arms:
        own = result.arm(arm.name)
        sizes = {"parameters": own.num_parameters, "operations": 100 * own.flops / result.arms[0].flops}
        found.append(replace(arm, runs={seed: {**run, **sizes} for seed, run in arm.runs.items()}))
    return found


def _only_tokens(result: StudyResult, arm: ArmMeasures) -> bool:
    """Whether the arm differs from the base in its tokens alone, at equal compute."""
    design = result.arm(arm.name).arm
    return arm.name == result.arms[0].arm.name or (design.match == "flops" and design.changes.keys() == {"corpus"})


def _kind(arm: ArmMeasures) -> str:
    return arm.config["corpus"]["tokenizer"]["name"]


def _compute(result: StudyResult, arm: ArmMeasures) -> Check:
    own, base = (each.flops for each in (result.arm(arm.name), result.arms[0]))
    what = _("training operations above the base's")
    expected = _("equal compute within {percent:.0f}%", percent=EQUAL_COMPUTE)
    value = 100 * (own / base - 1)
    return Check(arm.title, what, value, -EQUAL_COMPUTE, EQUAL_COMPUTE, expected, "%", digits=1, arm=arm.name)


def _slope(pairs: Sequence[ArmMeasures], loss: Quantity) -> list[Comparison]:
    """The slope of the loss against log2 of the vocabulary, seed by seed, against zero."""
    sizes = np.log2([arm.first["vocab_size"] for arm in pairs])
    if len(set(sizes.tolist())) < 2:
        return []
    seeds = [seed for seed in pairs[0].runs if all(seed in arm.runs for arm in pairs)]
    slopes = {seed: float(np.polyfit(sizes, [arm.values(loss)[seed] for arm in pairs], 1)[0]) for seed in seeds}
    slope = replace(loss, name=_("test loss per doubling of the vocabulary"))
    subject = _("{first} to {last}", first=pairs[0].title, last=pairs[-1].title)
    return [to_fixed(subject, 0.0, _("no slope"), slope, slopes)]


PROBE = Probe("text-units", N_("Tokens and text"), measure, more=_view, seconds=(1, 1, 1))
