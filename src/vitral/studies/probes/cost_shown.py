"""How the cost of a token by length looks in a report, and what may be said of it."""

from typing import TYPE_CHECKING

from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.sections import Heading, Paragraph, Table
from vitral.studies.probes.protocol import Exhibit, Plain, Plot
from vitral.studies.verdict import Finding
from vitral.studies.wording import signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitral.studies.results import StudyResult

NAME = "cost-by-length"
WITHIN = 0.15
"""Most that a measured exponent may be off the predicted one and still count as agreeing."""
BUSY = 1.3
"""Wall-clock time in units of processor time from which the machine was busy with something else."""
CHANGED = 1.15
"""Factor by which a rate must change over the fitted lengths to be spoken of."""
MICRO, GIGA = 1e6, 1e9
TITLES = {
    "cached": "one more token, cached",
    "recomputed": "one more token, recomputed",
    "bidirectional": "one more token, bidirectional",
    "at-once": "window read at once",
    "one-by-one": "window read token by token",
    "training": "training on a window",
}
SHORT = {
    "cached": "cached",
    "recomputed": "recomputed",
    "bidirectional": "both ways",
    "at-once": "at once",
    "one-by-one": "one by one",
    "training": "training",
}


def show(result: "StudyResult", measured: Plain) -> Exhibit:
    """Time per token against length with the predicted lines, tables of exponents and bytes, findings."""
    if "exponents" not in measured:
        return Exhibit()
    findings = (*(_exponent(way, measured) for way in TITLES), *_ratios(measured), *_memory(measured))
    caption = (
        "Processor time of one token against length, both axes logarithmic: one more token with a cache, recomputed, "
        "and under the bidirectional mask; a window read at once and one token by one; training on it. At the right "
        f"the exponent fitted on {_ends(measured)} tokens, in brackets that of the counted operations. Dashed: the "
        "course that these predict, laid through the last point."
    )
    alt = " ".join(finding.text for finding in findings)
    return Exhibit(
        sections=(
            Heading("What a token costs as the text grows", 3),
            Paragraph(_about(measured)),
            Plot(_figure(measured), "time-by-length", caption, alt),
            _exponent_table(measured),
            _time_table(measured),
            _memory_table(measured),
        ),
        findings=findings,
    )


def _about(measured: Plain) -> str:
    model, batch = measured["model"], measured["batch"]
    return (
        f"A model of {model['layers']} layer(s), d_model {model['d_model']} and {model['heads']} heads, small so that "
        f"attention outweighs the rest at the longest lengths; threads: {measured['threads']}. One more token with a "
        f"cache is computed for {batch} texts side by side and divided by them, since a single one would cost more in "
        f"calls than in computing. Medians of {measured['rounds']} rounds; processor time, all threads together. "
        "Predicted exponents are fitted on the counted operations at the same lengths as the measured ones. What "
        "training in parallel saves is measured on forward passes: a window read at once against the same window read "
        "token by token with a cache, every token given (teacher forcing). Training token by token was not timed."
    )


def _figure(measured: Plain) -> "Figure":
    lengths, lines = measured["lengths"], []
    for way, title in SHORT.items():
        times, flops = measured["processor"][way], measured["flops"][way]
        found = measured["exponents"][way]
        label = f"{title} n^{found['processor']['slope']:.2f} (n^{found['predicted']:.2f})"
        lines.append(Line(label, lengths, [MICRO * value for value in times]))
        start = len(lengths) - len(measured["fitted"])
        course = [MICRO * times[-1] * value / flops[-1] for value in flops]
        lines.append(Line("", lengths[start:], course[start:], theory=True))
    x = Axis("length n (tokens)", log=True, ticks=[length for length in lengths if length & (length - 1) == 0])
    return line_plot(
        lines, x, Axis("processor time of one token (µs)", log=True), title="Processor time of one token by length"
    )


def _exponent_table(measured: Plain) -> Table:
    rows = []
    for way, title in TITLES.items():
        found = measured["exponents"][way]
        processor, wall = found["processor"], found["wall"]
        rows.append(
            (
                title,
                f"{found['predicted']:.2f}",
                f"{processor['slope']:.2f}",
                f"{processor['low']:.2f} to {processor['high']:.2f}",
                signed(processor["slope"] - found["predicted"], 2),
                f"{wall['slope']:.2f}",
            )
        )
    columns = ("way", "predicted", "measured", "95% interval", "off by", "wall-clock")
    return Table(f"Exponents of the time of one token, fitted on {_ends(measured)} tokens", columns, tuple(rows))


def _time_table(measured: Plain) -> Table:
    rows = tuple((title, *(_micro(value) for value in measured["processor"][way])) for way, title in TITLES.items())
    return Table("Processor time of one token, µs", ("way", *(f"{length:,}" for length in measured["lengths"])), rows)


def _micro(seconds: float) -> str:
    """Microseconds in three digits at least.

    >>> _micro(0.00123456), _micro(0.0000123456)
    ('1,235', '12.3')
    """
    return f"{MICRO * seconds:,.0f}" if MICRO * seconds >= 100 else f"{MICRO * seconds:.3g}"


def _memory_table(measured: Plain) -> Table:
    names = {
        "cache": "keys and values of one text, found",
        "cache_counted": "the same, counted",
        "kept": "kept for a backward pass, found",
        "kept_counted": "the same, counted",
        "recomputed_counted": "held by a step without a cache, causal or bidirectional, counted",
    }
    rows = tuple(
        (
            title,
            *(
                f"{value / length:,.0f}"
                for value, length in zip(measured["memory"][key], measured["lengths"], strict=True)
            ),
        )
        for key, title in names.items()
        if key in measured["memory"]
    )
    return Table("Bytes per token", ("", *(f"{length:,}" for length in measured["lengths"])), rows)


def _exponent(way: str, measured: Plain) -> "Finding":
    """Whether the measured exponent is within `WITHIN` of the predicted one, and if not what can be told of why."""
    found = measured["exponents"][way]
    processor, predicted = found["processor"], found["predicted"]
    off = processor["slope"] - predicted
    text = (
        f"{TITLES[way][:1].upper()}{TITLES[way][1:]}: time grows as n^{processor['slope']:.2f} (95% interval "
        f"{processor['low']:.2f} to {processor['high']:.2f}) over {_ends(measured)} tokens, counted operations as "
        f"n^{predicted:.2f}"
    )
    holds = abs(off) <= WITHIN
    if holds:
        return Finding(NAME, "", f"{text}: within {WITHIN}.", holds=True)
    return Finding(NAME, "", f"{text}: off by {signed(off, 2)}. {_why(way, measured)}", holds=False)


def _why(way: str, measured: Plain) -> str:
    """How fast operations were done, and what would make that so; nothing here tells causes apart."""
    fitted = len(measured["fitted"])
    times, flops, wall = (measured[key][way][-fitted:] for key in ("processor", "flops", "wall"))
    first, last = (flops[index] / times[index] / GIGA for index in (0, -1))
    rate = f"The rate goes from {first:.2f} to {last:.2f} billion operations a second of processor time"
    if last > CHANGED * first:
        why = f"{rate}, as it would if a part of the time did not grow with n (calls, norms, set-up)."
    elif first > CHANGED * last:
        why = f"{rate}, as it would if what is read no longer fitted the processor's own memory at the longer lengths."
    else:
        why = f"{rate}."
    if way in ("cached", "one-by-one"):
        bandwidth = _bandwidth(measured)
        why += f" Keys and values are read at {bandwidth[0]:.1f} to {bandwidth[1]:.1f} GB a second."
    busy = max(one / other for one, other in zip(wall, times, strict=True))
    if busy >= BUSY:
        why += f" Wall-clock times are up to {busy:.1f} times as long, as where a machine is busy with other things."
    return why


def _bandwidth(measured: Plain) -> tuple[float, float]:
    """Gigabytes of keys and values that one more token reads a second, at the first and the last fitted length."""
    fitted = len(measured["fitted"])
    read, times = measured["memory"]["cache"][-fitted:], measured["processor"]["cached"][-fitted:]
    return read[0] / times[0] / GIGA, read[-1] / times[-1] / GIGA


def _ratios(measured: Plain) -> "tuple[Finding, ...]":
    """What the cache saves, and what reading at once saves, at the longest length."""
    longest = measured["lengths"][-1]
    times = {way: measured["processor"][way][-1] for way in TITLES}
    found = []
    for slow, fast, what in (
        ("recomputed", "cached", "one more token without the cache"),
        ("bidirectional", "cached", "one more token under the bidirectional mask, which allows no cache,"),
        (
            "one-by-one",
            "at-once",
            "a token of a given window read token by token (forward only, many texts side by side)",
        ),
    ):
        ratio = times[slow] / times[fast]
        words = f"{ratio:,.2g} times" if ratio < 10 else f"{ratio:,.0f} times"
        than = {"recomputed": "one with it", "bidirectional": "one with a cache", "one-by-one": "one read at once"}[
            slow
        ]
        text = (
            f"At {longest:,} tokens {what} takes {words} the time of {than}: "
            f"{_micro(times[slow])} against {_micro(times[fast])} µs."
        )
        found.append(Finding(NAME, "", text, holds=ratio > 1))
    return tuple(found)


def _memory(measured: Plain) -> "tuple[Finding, ...]":
    """Whether the bytes found are those counted."""
    memory, lengths = measured["memory"], measured["lengths"]
    exact = memory["cache"] == memory["cache_counted"]
    worst = max(abs(one / other - 1) for one, other in zip(memory["kept"], memory["kept_counted"], strict=True))
    per_token = memory["cache"][-1] / lengths[-1]
    kept = [size / length for size, length in zip(memory["kept"], lengths, strict=True)]
    text = (
        f"Keys and values take {per_token:,.0f} bytes per token, {'as' if exact else 'not as'} counted; what a "
        f"training pass keeps is within {100 * worst:.1f}% of what is counted, {kept[0]:,.0f} bytes per token at "
        f"{lengths[0]:,} tokens and {kept[-1]:,.0f} at {lengths[-1]:,}."
    )
    if "recomputed_counted" in memory:
        held, cached = (memory[key][-1] for key in ("recomputed_counted", "cache"))
        text += (
            f" One more token without a cache, causal or bidirectional, holds {held / lengths[-1]:,.0f} bytes for each "
            f"token of the text while it is computed (counted), {held / cached:.1f} times what a cache keeps."
        )
    return (Finding(NAME, "", text, holds=exact and worst <= WITHIN),)


def _ends(measured: Plain) -> str:
    return f"{measured['fitted'][0]:,} to {measured['fitted'][-1]:,}"
