"""Cost of a token by the length of the text: measured exponents beside those of the counted operations."""

from vitral.core.language import N_, _, number
from vitral.core.text import minus
from vitral.inspection.cost import WAYS, cost_by_length
from vitral.studies.probe import Axis, Check, Curve, Lines, Plain, Probe, Rows, Setting, StudyResult, View

BUDGETS = (
    ((128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192), 3),
    ((128, 256, 512, 1024, 2048, 4096, 6144, 8192, 12288), 5),
    ((128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384, 24576), 9),
)
"""Lengths and rounds."""
WITHIN = 0.15
"""Largest difference of a measured exponent and the predicted one that agree."""
MICRO = 1e6
DRAWN = {"cached": N_("cached"), "recomputed": N_("recomputed"), "bidirectional": N_("bidirectional")}
"""Ways with a shorter name in the figure."""
RATIOS = (("recomputed", "cached"), ("bidirectional", "cached"), ("one-by-one", "at-once"))


def cost(setting: Setting) -> Plain:
    """Times and operations by length, see `vitral.inspection.cost_by_length`."""
    lengths, rounds = setting.size(*BUDGETS)
    return cost_by_length(lengths, rounds=rounds)


def _cost(result: StudyResult, measured: Plain) -> View:
    """Time against length with the predicted lines, the exponents, and the checks."""
    model, lengths, fitted = measured["model"], measured["lengths"], measured["fitted"]
    about = _(
        "A model of {layers} layer(s), d_model {d_model} and {heads} heads, so small that attention outweighs the rest "
        "at the longest lengths; {threads} thread(s). One more token with a cache is computed for {batch} texts side "
        "by side and divided by them. Times are medians of {rounds} rounds, summed over threads. A window read token "
        "by token is given every token (forward passes only); training token by token was not timed.",
        **model,
        **measured,
    )
    over = _("{first:,} to {last:,} tokens", first=fitted[0], last=fitted[-1])
    curves, rows, checks = [], [], []
    for way, title in WAYS.items():
        times, flops = measured["processor"][way], measured["flops"][way]
        course = [MICRO * times[-1] * one / flops[-1] for one in flops[-len(fitted) :]]
        curves.append(Curve(_(DRAWN.get(way, title)), lengths, [MICRO * one for one in times]))
        curves.append(Curve("", fitted, course, theory=True))
        own, predicted = measured["exponents"][way]["processor"], measured["exponents"][way]["predicted"]
        numbers = [predicted, own["slope"], own["low"], own["high"], own["slope"] - predicted]
        rows.append((_(title), *(minus(number(one, ".2f")) for one in numbers)))
        what = _("exponent of time over {lengths}", lengths=over)
        expected = _("{exponent:.2f} ± {within:g}, of operations", exponent=predicted, within=WITHIN)
        low, high, ends = predicted - WITHIN, predicted + WITHIN, (own["low"], own["high"])
        checks.append(Check(_(title), what, own["slope"], low, high, expected, digits=2, interval=ends))
    for slow, fast in RATIOS:
        ratio = measured["processor"][slow][-1] / measured["processor"][fast][-1]
        what = _("time of a token at {length:,} tokens over that of {way}", length=lengths[-1], way=_(WAYS[fast]))
        checks.append(Check(_(WAYS[slow]), what, ratio, 1.0, expected=_("above 1"), digits=1))
    heads = (_("way"), _("predicted"), _("measured"), _("95% from"), _("95% to"), _("difference"))
    table = Rows(_("Exponents of the time of one token over {lengths}", lengths=over), heads, rows)
    x = Axis(_("length n (tokens)"), log=True, ticks=[n for n in lengths if n & (n - 1) == 0])
    y = Axis(_("processor time of one token (µs)"), log=True)
    note = _("Dashed lines have the course of the counted operations through the last point.")
    figure = Lines(_("Processor time of one token"), x, y, curves, note=note)
    return View(about, [table], figure, checks=checks)


PROBES = (
    Probe(
        "cost-by-length",
        N_("Cost of a token by the length of the text"),
        cost,
        more=_cost,
        seconds=(15, 60, 200),
        of_runs=False,
    ),
)
