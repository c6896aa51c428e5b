"""Loss by position in the window, and on the same targets beyond the trained context length."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from vitral.core.language import N_, _
from vitral.core.text import capital
from vitral.inspection import loss_by_position
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Comparison,
    Course,
    Means,
    Note,
    Plain,
    Points,
    Probe,
    Quantity,
    Range,
    StudyResult,
    Trained,
    View,
    Within,
    difference,
    require_causal_lm,
)

TOKENS = (60_000, 160_000, 400_000)
LONGER = (2, 4, 4)  # context lengths in the longest window
KEEPS = 0.05
"""Nats by which the loss may be higher beyond the trained length and still count as kept."""
EXTRAPOLATE = ("rotary", "relative", "none", "sinusoidal")
"""Positions that can be read beyond the trained length, those of distance alone first."""


def measure(trained: Trained) -> Plain:
    """Losses on the test split at every position of the context and at every quarter of longer windows."""
    require_causal_lm(trained)
    tokens, multiple = trained.size(*TOKENS), trained.size(*LONGER)
    return loss_by_position(trained.model, trained.test, most_tokens=tokens, multiple=multiple)


def _loss(name: str, key: str, places: Sequence[int], *, whole: bool = False) -> Quantity:
    """The mean loss at those of these places that are scored; None where none is, or, if `whole`, not all are."""

    def read(run: Mapping[str, Any]) -> float | None:
        known = [nats for place, nats in enumerate(run[key]["nats"] or ()) if place in places and nats is not None]
        return fmean(known) if known and not (whole and len(known) < len(places)) else None

    return Quantity(name, read, "nats", "lower")


def _by_quarter(run: Mapping[str, Any]) -> Points:
    return [((place + 0.5) / 4, nats) for place, nats in enumerate(run["beyond"]["nats"] or ())]


def _view(result: StudyResult, arms: Arms) -> View:
    """The loss along the window against the base's; the loss beyond the trained length against that at its end."""
    base, length = arms[0], max(arm.first["context_length"] for arm in arms)
    multiple = max(arm.first["beyond"]["length"] // arm.first["context_length"] for arm in arms)
    begin, end = _("loss in the first quarter of the window"), _("loss in the last quarter of the window")
    inside = (_loss(begin, "inside", range(length // 4)), _loss(end, "inside", range(3 * length // 4, length)))
    last, near, far, past = (
        _loss(
            _("loss at {begin:g}\N{EN DASH}{end} trained lengths", begin=begin / 4, end=end // 4),
            "beyond",
            range(begin, end),
            whole=True,
        )
        for begin, end in ((3, 4), (4, 8), (8, 4 * multiple), (4, 4 * multiple))
    )
    rise = difference(_("rise of the loss from 1 to {n} trained lengths", n=multiple), past, last)
    contrasts = [*_beside_alibi(result, arms, rise), *Within(near, last).of(result, arms)]
    contrasts += Within(far, last).of(result, arms)
    for arm in arms[1:]:
        curves = [run["inside"]["nats"] for one in (base, arm) for run in one.runs.values()]
        shared = [place for place, losses in enumerate(zip(*curves, strict=False)) if None not in losses]
        ends = (shared[3 * len(shared) // 4 :], shared[: max(1, len(shared) // 4)])
        change = difference(
            _("loss in the last less the first quarter"), *(_loss("", "inside", places) for places in ends)
        )
        contrasts += Against([change]).of(result, [base, arm])
    return View(
        tables=[Means(arms, (*inside, last, near, far))],
        comparisons=contrasts,
        checks=Range(rise, high=KEEPS, expected=N_("at most {high:g}")).of(arms),
        notes=[_unread(arm) for arm in arms if not arm.values(rise)],
    )


def _beside_alibi(result: StudyResult, arms: Arms, rise: Quantity) -> list[Comparison]:
    """The rise of each arm's loss beyond its trained length, against that of ALiBi (Press et al. 2022)."""
    kinds = {arm.name: arm.config.get("model", {}).get("positions") for arm in arms}
    alibi = [arm for arm in arms if kinds[arm.name] == "alibi"]
    order = {kind: place for place, kind in enumerate(EXTRAPOLATE)}
    others = [arm for arm in arms if kinds[arm.name] != "alibi"]
    others.sort(key=lambda arm: order.get(str(kinds[arm.name]), len(order)))
    return Against([replace(rise, better="lower")]).of(result, [alibi[0], *others]) if alibi else []


def _unread(arm: ArmMeasures) -> Note:
    why = next((run["beyond"]["why"] for run in arm.runs.values() if "why" in run["beyond"]), None)
    text = _(
        "{arm}: no loss beyond {n} tokens ({why}).",
        arm=capital(arm.title),
        n=arm.first["context_length"],
        why=_("not all of it is scored") if why is None else _(why),
    )
    return Note(text, arm.name)


PROBE = Probe(
    "by-position",
    N_("Loss by position in the window"),
    measure,
    figure=Course(
        N_("Beyond the trained length"),
        Axis(N_("position in a longer window, in trained lengths")),
        Axis(N_("loss (nats)")),
        _by_quarter,
    ),
    more=_view,
    seconds=(3, 8, 10),
)
