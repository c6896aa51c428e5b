"""Loss by position in the window, and on the same targets beyond the trained context length."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from vitral.core.language import N_, _
from vitral.figures.lines import Axis
from vitral.figures.sections import Heading
from vitral.figures.text import capital
from vitral.inspection import loss_by_position
from vitral.studies import probe
from vitral.studies.probe import Comparison, Note, Plain, Quantity, StudyResult

TOKENS = (60_000, 160_000, 400_000)
LONGER = (2, 4, 4)  # context lengths in the longest window
KEEPS = 0.05
"""Nats by which the loss may be higher beyond the trained length and still count as kept."""
EXTRAPOLATE = ("rotary", "relative", "none", "sinusoidal")
"""Positions that can be read beyond the trained length, those of distance alone first."""
INSIDE = N_("Mean over seeds of the loss at groups of positions, two to each doubling.")
BEYOND = N_("Mean over seeds of the loss on the same targets at every quarter of a context length; trained up to 1.")


def measure(trained: probe.Trained) -> Plain:
    """Losses on the test split at every position of the context and at every quarter of longer windows."""
    probe.require_causal_lm(trained)
    tokens, multiple = trained.size(*TOKENS), trained.size(*LONGER)
    return loss_by_position(trained.model, trained.test, most_tokens=tokens, multiple=multiple)


def view(result: StudyResult, arms: probe.Arms) -> probe.View:
    """The loss along the window against the base's; the loss beyond the trained length against that at its end."""
    base, length = arms[0], max(arm.first["context_length"] for arm in arms)
    multiple = max(arm.first["beyond"]["length"] // arm.first["context_length"] for arm in arms)
    fourfold = sorted({0, length, *(4**n for n in range(10) if 4**n < length)})
    groups = (*pairwise(fourfold), (0, length // 4), (3 * length // 4, length))
    columns = [_loss(f"{begin + 1}\N{EN DASH}{end}", "inside", range(begin, end)) for begin, end in groups]
    middles = {
        (begin + 1 + end) / 2: _loss(_("loss"), "inside", range(begin, end)) for begin, end in probe.halves(length)
    }
    quarters = {(place + 0.5) / 4: _loss(_("loss"), "beyond", [place]) for place in range(4 * multiple)}
    last, near, far, past = (
        _loss(
            _("loss at {begin:g}\N{EN DASH}{end} trained lengths", begin=begin / 4, end=end // 4),
            "beyond",
            range(begin, end),
            whole=True,
        )
        for begin, end in ((3, 4), (4, 8), (8, 4 * multiple), (4, 4 * multiple))
    )
    rise = probe.difference(_("rise of the loss from 1 to {n} trained lengths", n=multiple), past, last)
    contrasts = [*_beside_alibi(arms, rise), *probe.within(arms, near, last), *probe.within(arms, far, last)]
    for arm in arms[1:]:
        curves = [run["inside"]["nats"] for one in (base, arm) for run in one.runs.values()]
        shared = [place for place, losses in enumerate(zip(*curves, strict=False)) if None not in losses]
        end, start = (
            _loss("", "inside", q) for q in (shared[3 * len(shared) // 4 :], shared[: max(1, len(shared) // 4)])
        )
        change = probe.difference(_("loss in the last less the first quarter"), end, start)
        contrasts += probe.against_base((base, arm), change)
    x = Axis(_("position in the window"), log=True, ticks=[1 << n for n in range(length.bit_length())])
    lengths = Axis(_("position in a longer window, in trained lengths"), ticks=range(multiple + 1))
    title, about = _("Beyond the trained length"), _("Test loss by positions in the window, means over seeds")
    sections = (
        Heading(_("Loss by position in the window")),
        *probe.mean_lines("loss-by-position", _("Loss by position"), arms, middles, x, _(INSIDE)),
        probe.mean_table(about, arms, *columns),
        Heading(title),
        *probe.mean_lines("loss-beyond-the-trained-length", title, arms, quarters, lengths, _(BEYOND)),
        probe.mean_table(_("Test loss on the same targets, means over seeds"), arms, last, near, far),
    )
    checks = probe.in_range(arms, rise, high=KEEPS, expected=_("at most {most:g}", most=KEEPS))
    return probe.View(sections, contrasts, checks, [_unread(arm) for arm in arms if not arm.values(rise)])


def _beside_alibi(arms: probe.Arms, rise: Quantity) -> tuple[Comparison, ...]:
    """The rise of each arm's loss beyond its trained length, against that of ALiBi (Press et al. 2022)."""
    kind = lambda arm: arm.config.get("model", {}).get("positions")  # noqa: E731
    alibi = [arm for arm in arms if kind(arm) == "alibi"]
    others = [arm for arm in arms if kind(arm) != "alibi"]
    others.sort(key=lambda arm: EXTRAPOLATE.index(kind(arm)) if kind(arm) in EXTRAPOLATE else len(EXTRAPOLATE))
    return probe.against_base((alibi[0], *others), replace(rise, better="lower")) if alibi else ()


def _loss(name: str, key: str, places: Sequence[int], *, whole: bool = False) -> Quantity:
    """The mean loss at those of these places that are scored; None where none is, or, if `whole`, not all are."""

    def read(run: Mapping[str, Any]) -> float | None:
        known = [nats for place, nats in enumerate(run[key]["nats"] or ()) if place in places and nats is not None]
        return fmean(known) if known and not (whole and len(known) < len(places)) else None

    return Quantity(name, read, "nats", "lower")


def _unread(arm: probe.ArmMeasures) -> Note:
    why = next((run["beyond"]["why"] for run in arm.runs.values() if "why" in run["beyond"]), None)
    text = _(
        "{arm}: no loss beyond {n} tokens ({why}).",
        arm=capital(arm.title),
        n=arm.first["context_length"],
        why=_("not all of it is scored") if why is None else _(why),
    )
    return Note(text, arm.name)
