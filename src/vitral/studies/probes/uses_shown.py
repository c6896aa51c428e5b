"""What the uses of each mask look like in a report, and what may be said of them."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from vitral.figures.grid import value_grid
from vitral.figures.sections import Heading, Paragraph, Table
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.statistics import PairedDifference, holm, mean_interval, paired_difference
from vitral.studies.wording import NONE, p_clause, signed

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult
    from vitral.studies.verdict import Finding

NAME = "uses"
LEAKS = 1e-3
"""Mean total variation from which a prediction counts as moved by the next token; rounding moves it by less."""
LEVEL, ENOUGH_SEEDS = 0.05, 3
Read = Callable[[Plain], float | None]


def _at(*path: str) -> Read:
    """Reads one number of a measure; None where a step of the way is missing."""

    def read(measured: Plain) -> float | None:
        value: Any = measured
        for key in path:
            value = None if value is None else value[key]
        return value

    return read


SHOWN: dict[str, Read] = {
    "filling a gap, both sides": _at("filling", "both", "accuracy"),
    "filling a gap, left side": _at("filling", "left", "accuracy"),
    "continuing": _at("continuing", "accuracy"),
    "telling works apart": _at("classifying", "activations", "accuracy"),
}
COMPARED: dict[str, tuple[Read, str, int]] = {
    "Filling a gap from both sides": (_at("filling", "both", "nats"), "nats", -1),
    "Continuing a text": (_at("continuing", "nats"), "nats", -1),
    "Telling works apart": (_at("classifying", "activations", "accuracy"), "of accuracy", 1),
}
"""What is compared with the base: the number, its unit, and whether more of it is better."""


def show(result: "StudyResult", measured: ByRun) -> Exhibit:
    """A table, a grid of accuracies, and findings: the leak, uses against the base, the right side's worth."""
    arms = [arm for arm in result.arms if measured.get(arm.arm.name)]
    if not arms:
        return Exhibit()
    titles = {arm.arm.name: arm.arm.title for arm in arms}
    runs = {name: measured[name] for name in titles}
    first = next(iter(next(iter(runs.values())).values()))
    findings = (
        *(_leak_finding(name, titles[name], list(by_seed.values())) for name, by_seed in runs.items()),
        *_comparisons(titles, runs),
        *_right_side(titles, runs),
        *_classes(titles, runs),
    )
    grid = value_grid(
        [[_mean(read, by_seed.values()) for read in SHOWN.values()] for by_seed in runs.values()],
        list(titles.values()),
        list(SHOWN),
        "accuracy",
        title="What each mask is of use for",
    )
    caption = (
        "Accuracy of four uses, mean over seeds; blank: the model can say nothing of it. Works are told apart by a "
        "linear probe on averaged activations."
    )
    alt = " ".join(finding.text for finding in findings)
    return Exhibit(
        sections=(
            Heading("What each mask is of use for", 3),
            Paragraph(_about(first)),
            Plot(grid, "uses-by-mask", caption, alt),
            _table(titles, runs),
            _leak_table(titles, runs),
        ),
        findings=findings,
    )


def _about(first: Plain) -> str:
    place, right = first["gap"], first["right"]
    text = (
        f"On windows of the test part. A gap of one token stands after {place} tokens and before {right} more. A model "
        "trained to fill blanks is given a blank there; causal and prefix models are asked by the chain rule, "
        "p(c | left) · p(right | left, c) over all tokens c, and from the left side alone; all see the same tokens. To "
        f"continue means to name the token after {place}: under the prefix mask they are the prefix, and a model of "
        "blanks is given one at the end."
    )
    classes = first["classifying"]
    if classes is None:
        return f"{text} No two works, or stretches of the text, reach into all its parts, so none are told apart."
    what = "works of the text's table of contents" if classes["works"] else "equal stretches of the text"
    passages = classes["passages"]
    return (
        f"{text} Telling works apart: which of {len(classes['titles'])} {what} a passage of {first['context']} tokens "
        f"is from, by multinomial logistic regression on activations after the final norm, averaged over the passage; "
        f"fitted on {passages['train']} passages of the training part, its penalty chosen on {passages['validation']} "
        f"of the validation part, measured on {passages['test']} of the test part, as many from each: "
        f"{'; '.join(classes['titles'])}."
    )


def _table(titles: dict[str, str], runs: ByRun) -> Table:
    reads = {
        "gap, both sides": ("filling", "both"),
        "gap, left side": ("filling", "left"),
        "continuing": ("continuing",),
    }
    rows = []
    for name, title in titles.items():
        cells = [
            _cell(_mean(_at(*path, "accuracy"), runs[name].values()), _mean(_at(*path, "nats"), runs[name].values()))
            for path in reads.values()
        ]
        probes = (
            _mean(_at("classifying", kind, "accuracy"), runs[name].values()) for kind in ("activations", "frequencies")
        )
        majority = _mean(_at("classifying", "activations", "majority"), runs[name].values())
        targets = next(iter(runs[name].values()))["targets"]
        rows.append((title, str(targets), *cells, *(_share(value) for value in probes), _share(majority)))
    columns = ("arm", "targets", *reads, "works, activations", "works, token counts alone", "works, largest class")
    return Table("Share that is right (and mean nats of the true token), means over seeds", columns, tuple(rows))


def _leak_table(titles: dict[str, str], runs: ByRun) -> Table:
    rows = []
    for name, title in titles.items():
        for where in ("early", "late"):
            one = next(iter(runs[name].values()))["leak"][where]
            means = [
                _mean(_at("leak", where, key), runs[name].values()) for key in ("accuracy", "nats", "moved", "follows")
            ]
            seen = "yes" if one["visible"] else "no"
            rows.append((f"{title}, position {one['position']}", seen, *(_share(value) for value in means)))
    columns = ("arm", "sees the next token", "names it", "nats", "moved by changing it", "then names the new one")
    caption = "What a position says of the token after it, which is there to be seen where the mask allows it"
    return Table(caption, columns, tuple(rows))


def _leak_finding(name: str, title: str, runs: Sequence[Plain]) -> "Finding":
    """Whether predictions move with the next token where the mask shows it, and nowhere else."""
    from vitral.studies.verdict import Finding

    texts, holds = [], True
    for where in ("early", "late"):
        visible, place = runs[0]["leak"][where]["visible"], runs[0]["leak"][where]["position"]
        moved = [run["leak"][where]["moved"] for run in runs]
        named, nats = (_mean(_at("leak", where, key), runs) or 0.0 for key in ("accuracy", "nats"))
        mean = sum(moved) / len(moved)
        does = f"by {mean:.2f} (total variation)" if max(moved) >= LEAKS else "not at all"
        sight = "shows" if visible else "hides"
        texts.append(
            f"at position {place} the mask {sight} the next token, changing it moves what is said there {does}, and it "
            f"is named with accuracy {named:.2f} ({nats:.3f} nats)"
        )
        holds &= (max(moved) >= LEAKS) == visible
    return Finding(NAME, name, f"{_capital(title)}: {'; '.join(texts)}.", holds=holds)


def _comparisons(titles: dict[str, str], runs: ByRun) -> "list[Finding]":
    """Each use of each arm against the base, seed by seed, p values adjusted for all of them (Holm)."""
    base, *others = titles
    pairs: list[tuple[str, str, PairedDifference]] = []
    for name in others:
        for use, (read, _, _) in COMPARED.items():
            shared = [seed for seed in runs[name] if seed in runs[base]]
            values = [(read(runs[name][seed]), read(runs[base][seed])) for seed in shared]
            known = [(one, other) for one, other in values if one is not None and other is not None]
            if known:
                arm, against = zip(*known, strict=True)
                pairs.append((name, use, paired_difference(arm, against)))
    adjusted = iter(holm([paired.p_value for _, _, paired in pairs if paired.p_value is not None]))
    return [
        _comparison(titles, name, use, paired, None if paired.p_value is None else next(adjusted))
        for name, use, paired in pairs
    ]


def _comparison(titles: dict[str, str], name: str, use: str, paired: PairedDifference, p: float | None) -> "Finding":
    from vitral.studies.verdict import Finding

    base, (_, unit, better) = next(iter(titles.values())), COMPARED[use]
    between = paired.difference
    text = f"{use}, {titles[name]}: {signed(between.mean)} {unit} against {base}"
    if between.low is None or between.high is None or p is None:
        return Finding(NAME, name, f"{text}, from one seed: no verdict.")
    text += f" (95% interval {signed(between.low)} to {signed(between.high)})"
    if between.num < ENOUGH_SEEDS:
        return Finding(NAME, name, f"{text}, from {between.num} seeds: too few for a verdict.")
    corrected = f"{p_clause(p)} after Holm's correction"
    if p >= LEVEL:
        return Finding(NAME, name, f"{text}: no difference seen at this budget, {corrected}.", holds=False)
    way = "better" if between.mean * better > 0 else "worse"
    return Finding(NAME, name, f"{text}: {way}, {corrected}.", holds=True)


def _right_side(titles: dict[str, str], runs: ByRun) -> "list[Finding]":
    """How many nats the right side is worth when a gap is filled."""
    from vitral.studies.verdict import Finding

    found: list[Finding] = []
    for name, title in titles.items():
        both, left = (
            [value for run in runs[name].values() if (value := _at("filling", side, "nats")(run)) is not None]
            for side in ("both", "left")
        )
        if not both:
            text = f"{_capital(title)} can say nothing of a gap: it predicts the next token and has seen it."
            found.append(Finding(NAME, name, text))
            continue
        worth = mean_interval([one - other for one, other in zip(left, both, strict=True)])
        ends = (
            ""
            if worth.low is None or worth.high is None
            else f", 95% interval {signed(worth.low)} to {signed(worth.high)}"
        )
        holds = None if worth.low is None or worth.high is None else worth.low > 0
        text = (
            f"{_capital(title)}: with the right side of a gap as well as the left the true token costs "
            f"{sum(both) / len(both):.3f} nats instead of {sum(left) / len(left):.3f} (the right side is worth "
            f"{signed(worth.mean)}{ends})."
        )
        found.append(Finding(NAME, name, text, holds=holds))
    return found


def _classes(titles: dict[str, str], runs: ByRun) -> "list[Finding]":
    """Whether activations tell works apart better than the commonest class, and than counting tokens."""
    from vitral.studies.verdict import Finding

    found: list[Finding] = []
    for name, title in titles.items():
        probes = [run["classifying"] for run in runs[name].values() if run["classifying"] is not None]
        if not probes:
            continue
        accuracy, counts, majority, low, high = (
            sum(one[kind][key] for one in probes) / len(probes)
            for kind, key in (
                ("activations", "accuracy"),
                ("frequencies", "accuracy"),
                ("activations", "majority"),
                ("activations", "low"),
                ("activations", "high"),
            )
        )
        above = "above" if low > majority else "not surely above"
        against = "more than" if low > counts else "less than" if high < counts else "not surely other than"
        text = (
            f"{_capital(title)}: a linear probe tells {len(probes[0]['titles'])} works apart with accuracy "
            f"{accuracy:.2f} (95% interval of one run's passages {low:.2f} to {high:.2f}), {above} the {majority:.3f} "
            f"of the largest class, and {against} the {counts:.2f} that counts of tokens alone give."
        )
        found.append(Finding(NAME, name, text, holds=low > majority))
    return found


def _mean(read: Read, runs: Iterable[Plain]) -> float | None:
    """The mean over runs that have the number; None where none has."""
    values = [value for run in runs if (value := read(run)) is not None]
    return sum(values) / len(values) if values else None


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _cell(accuracy: float | None, nats: float | None) -> str:
    return NONE if accuracy is None or nats is None else f"{accuracy:.3f} ({nats:.3f})"


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]
