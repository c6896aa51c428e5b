"""Cost of a token by the length of the text: measured exponents beside those of the counted operations."""

from collections.abc import Iterator

from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.sections import Heading, Paragraph, Table
from vitral.figures.text import minus
from vitral.inspection.cost import BYTES, WAYS, cost_by_length, rates
from vitral.studies.claims import Check, Plain
from vitral.studies.probe import Plot, Setting, StudyProbe, View
from vitral.studies.results import StudyResult

BUDGETS = {
    "quick": ((128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192), 3),
    "standard": ((128, 256, 512, 1024, 2048, 4096, 6144, 8192, 12288), 5),
    "full": ((128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384, 24576), 9),
}
"""Lengths and rounds."""
WITHIN = 0.15
"""Largest difference of a measured exponent and the predicted one, and relative difference of bytes, that agree."""
MICRO, GIGA = 1e6, 1e9
RATIOS = (("recomputed", "cached"), ("bidirectional", "cached"), ("one-by-one", "at-once"))


def measure(setting: Setting) -> Plain:
    """Times, operations and bytes by length, see `vitral.inspection.cost_by_length`."""
    lengths, rounds = BUDGETS[setting.budget]
    return cost_by_length(lengths, rounds=rounds)


def view(result: StudyResult, measured: Plain) -> View:
    """Time against length with the predicted lines; tables of exponents, times and bytes; the checks."""
    model, lengths = measured["model"], tuple(f"{length:,}" for length in measured["lengths"])
    about = (
        f"A model of {model['layers']} layer(s), d_model {model['d_model']} and {model['heads']} heads, so small that "
        f"attention outweighs the rest at the longest lengths; {measured['threads']} thread(s). One more token with a "
        f"cache is computed for {measured['batch']} texts side by side and divided by them. Times are medians of "
        f"{measured['rounds']} rounds, summed over threads. A window read token by token is given every token (forward "
        "passes only); training token by token was not timed."
    )
    times = tuple((title, *map(_micro, measured["processor"][way])) for way, title in WAYS.items())
    sections = (
        Heading("Cost of a token by the length of the text", 3),
        Paragraph(about),
        _plot(measured),
        _exponents(measured),
        Table("Processor time of one token, µs", ("way", *lengths), times),
        Table("Bytes per token", ("", *lengths), _bytes(measured)),
    )
    return View(sections, checks=tuple(_checks(measured)))


def _plot(measured: Plain) -> Plot:
    lengths, fitted, lines = measured["lengths"], measured["fitted"], []
    for way, title in WAYS.items():
        times, flops, exponent = measured["processor"][way], measured["flops"][way], measured["exponents"][way]
        label = f"{title} n^{exponent['processor']['slope']:.2f} (n^{exponent['predicted']:.2f})"
        course = [MICRO * times[-1] * one / flops[-1] for one in flops[-len(fitted) :]]
        lines.append(Line(label.removeprefix("one more token, "), lengths, [MICRO * one for one in times]))
        lines.append(Line("", fitted, course, theory=True))
    x = Axis("length n (tokens)", log=True, ticks=[n for n in lengths if n & (n - 1) == 0])
    y = Axis("processor time of one token (µs)", log=True)
    caption = (
        "Processor time of one token against length. At the right the exponent fitted over "
        f"{_over(measured)}, in brackets that of the counted operations; dashed lines have that course through the "
        "last point."
    )
    alt = f"Exponents over {_over(measured)}: {'; '.join(line.label for line in lines if line.label)}."
    return Plot(line_plot(lines, x, y, title="Processor time of one token"), "time-by-length", caption, alt)


def _exponents(measured: Plain) -> Table:
    pace, fitted, rows = rates(measured), measured["fitted"], []
    for way, title in WAYS.items():
        exponent = measured["exponents"][way]
        own, predicted, wall = exponent["processor"], exponent["predicted"], exponent["wall"]["slope"]
        numbers = [predicted, own["slope"], own["low"], own["high"], own["slope"] - predicted, wall]
        numbers += [pace[way]["first"] / GIGA, pace[way]["last"] / GIGA, pace[way]["busy"]]
        rows.append((title, *(minus(f"{number:.2f}") for number in numbers)))
    heads = ("way", "predicted", "measured", "95% from", "95% to", "difference", "wall-clock")
    heads += (f"GFLOP/s at {fitted[0]:,}", f"GFLOP/s at {fitted[-1]:,}", "most wall-clock / processor time")
    return Table(f"Exponents of the time of one token over {_over(measured)}", heads, tuple(rows))


def _bytes(measured: Plain) -> tuple[tuple[str, ...], ...]:
    memory, lengths = measured["memory"], measured["lengths"]
    there = {title: memory[key] for key, title in BYTES.items() if key in memory}
    rows = [(title, *(f"{a / b:,.0f}" for a, b in zip(sizes, lengths, strict=True))) for title, sizes in there.items()]
    read = zip(memory["cache"], measured["processor"]["cached"], strict=True)
    return (*rows, ("keys and values read, cached (GB a second)", *(f"{size / one / GIGA:.1f}" for size, one in read)))


def _checks(measured: Plain) -> Iterator[Check]:
    for way, title in WAYS.items():
        own, predicted = measured["exponents"][way]["processor"], measured["exponents"][way]["predicted"]
        what, expected = f"exponent of time over {_over(measured)}", f"{predicted:.2f} ± {WITHIN}, of operations"
        low, high, ends = predicted - WITHIN, predicted + WITHIN, (own["low"], own["high"])
        yield Check(title, what, own["slope"], low, high, expected, digits=2, interval=ends)
    for slow, fast in RATIOS:
        ratio = measured["processor"][slow][-1] / measured["processor"][fast][-1]
        what = f"time of a token at {measured['lengths'][-1]:,} tokens over that of {WAYS[fast]}"
        yield Check(WAYS[slow], what, ratio, 1.0, expected="above 1", digits=1)
    for key, most in (("cache", 0.0), ("kept", WITHIN)):
        pairs = zip(measured["memory"][key], measured["memory"][f"{key}_counted"], strict=True)
        off, title = max(abs(one / other - 1) for one, other in pairs), BYTES[key].removesuffix(", measured")
        what = "largest relative difference of measured and counted bytes"
        yield Check(title, what, off, high=most, expected=f"at most {most:g}")


def _over(measured: Plain) -> str:
    return f"{measured['fitted'][0]:,} to {measured['fitted'][-1]:,} tokens"


def _micro(seconds: float) -> str:
    return f"{MICRO * seconds:,.0f}" if MICRO * seconds >= 100 else f"{MICRO * seconds:.3g}"


COST_BY_LENGTH = StudyProbe("cost-by-length", measure, view, seconds={"quick": 15, "standard": 60, "full": 200})
