"""What the uses of each mask look like in a report, and what may be said of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitral.figures.grid import value_grid
from vitral.figures.sections import Heading, Paragraph, Table
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.statistics import PairedDifference, holm, paired_difference
from vitral.studies.verdict import ENOUGH_SEEDS, LEVEL, Finding
from vitral.studies.wording import NONE, capital, p_clause, signed

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult

NAME = "uses"
LEAKS = 1e-3
"""Mean total variation from which a prediction counts as moved by the next token; rounding moves it by less."""
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
    "telling where from": _at("classifying", "activations", "accuracy"),
}
COMPARED: dict[str, tuple[Read, str, int]] = {
    "Filling a gap from both sides": (_at("filling", "both", "nats"), "nats", -1),
    "Continuing a text": (_at("continuing", "nats"), "nats", -1),
    "Telling where a passage is from": (_at("classifying", "activations", "accuracy"), "of accuracy", 1),
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
        "Accuracy of four uses, mean over seeds; blank: the model can say nothing of it. Which of the "
        f"{_pieces(first['classifying'])} a passage is from is told by a linear probe on averaged activations."
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
        f"{text} Telling {_pieces(classes)} apart: which of {len(classes['titles'])} {what} a passage of "
        f"{first['context']} tokens is from, by multinomial logistic regression on activations after the final norm, "
        f"averaged over the passage; "
        f"fitted on {passages['train']} passages of the training part, its penalty chosen on {passages['validation']} "
        f"of the validation part, measured on {passages['test']} of the test part, as many from each: "
        f"{'; '.join(classes['titles'])}."
    )


def _pieces(classes: Plain | None) -> str:
    """What is told apart: works where the text has a table of contents, else equal stretches of it."""
    return "works" if classes is None or classes["works"] else "stretches"


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
    what = _pieces(next(iter(next(iter(runs.values())).values()))["classifying"])
    kinds = (f"{what}, activations", f"{what}, token counts alone", f"{what}, largest class")
    columns = ("arm", "targets", *reads, *kinds)
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
    return Finding(NAME, name, f"{capital(title)}: {'; '.join(texts)}.", holds=holds)


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
    adjusted = _adjusted({f"{name}: {use}": paired for name, use, paired in pairs})
    return [_comparison(titles, name, use, paired, adjusted.get(f"{name}: {use}")) for name, use, paired in pairs]


def _comparison(titles: dict[str, str], name: str, use: str, paired: PairedDifference, p: float | None) -> "Finding":
    base, (_, unit, better) = next(iter(titles.values())), COMPARED[use]
    between = paired.difference
    text = f"{use}, {titles[name]}: {signed(between.mean)} {unit} against {base}"
    if between.low is None or between.high is None:
        return Finding(NAME, name, f"{text}, from one seed: no verdict.")
    text += f" (95% interval {signed(between.low)} to {signed(between.high)})"
    if p is None:
        return Finding(NAME, name, f"{text}, from {between.num} seeds: too few for a verdict.")
    corrected = f"{p_clause(p)} after Holm's correction"
    if p >= LEVEL:
        return Finding(NAME, name, f"{text}: no difference seen at this budget, {corrected}.", holds=False)
    way = "better" if between.mean * better > 0 else "worse"
    return Finding(NAME, name, f"{text}: {way}, {corrected}.", holds=True)


def _right_side(titles: dict[str, str], runs: ByRun) -> "list[Finding]":
    """How many nats the right side is worth when a gap is filled, p values adjusted for all arms (Holm)."""
    both, left = (
        {
            name: [value for run in runs[name].values() if (value := _at("filling", side, "nats")(run)) is not None]
            for name in titles
        }
        for side in ("both", "left")
    )
    worths = {name: paired_difference(left[name], both[name]) for name in titles if both[name]}
    adjusted = _adjusted(worths)
    found: list[Finding] = []
    for name, title in titles.items():
        if name not in worths:
            text = f"{capital(title)} can say nothing of a gap: it predicts the next token and has seen it."
            found.append(Finding(NAME, name, text))
            continue
        worth, p = worths[name].difference, adjusted.get(name)
        size = signed(worth.mean)
        if worth.low is not None and worth.high is not None:
            size += f", 95% interval {signed(worth.low)} to {signed(worth.high)}"
        size += f", {p_clause(p)} after Holm's correction" if p is not None else ", too few seeds for a verdict"
        text = (
            f"{capital(title)}: with the right side of a gap as well as the left the true token costs "
            f"{sum(both[name]) / len(both[name]):.3f} nats instead of {sum(left[name]) / len(left[name]):.3f} (the "
            f"right side is worth {size})."
        )
        found.append(Finding(NAME, name, text, holds=None if p is None else p < LEVEL and worth.mean > 0))
    return found


def _adjusted(pairs: Mapping[str, PairedDifference]) -> dict[str, float]:
    """Holm's p values of the comparisons that have `ENOUGH_SEEDS`."""
    known = {
        name: paired.p_value
        for name, paired in pairs.items()
        if paired.p_value is not None and paired.difference.num >= ENOUGH_SEEDS
    }
    return dict(zip(known, holm(list(known.values())), strict=True))


def _classes(titles: dict[str, str], runs: ByRun) -> "list[Finding]":
    """Whether activations tell passages apart better than the commonest class, and than counting tokens.

    The second is compared seed by seed, p values adjusted for all arms (Holm).
    """
    by_arm = {
        name: [run["classifying"] for run in runs[name].values() if run["classifying"] is not None] for name in titles
    }
    by_arm = {name: probes for name, probes in by_arm.items() if probes}
    pairs = {
        name: paired_difference(_accuracies(probes, "activations"), _accuracies(probes, "frequencies"))
        for name, probes in by_arm.items()
    }
    adjusted = _adjusted(pairs)
    found: list[Finding] = []
    for name, probes in by_arm.items():
        accuracy, majority, low, high = (
            sum(one["activations"][key] for one in probes) / len(probes)
            for key in ("accuracy", "majority", "low", "high")
        )
        above = "above" if low > majority else "not surely above"
        text = (
            f"{capital(titles[name])}: a linear probe tells {len(probes[0]['titles'])} {_pieces(probes[0])} apart "
            f"with accuracy {accuracy:.2f} (95% interval of one run's passages {low:.2f} to {high:.2f}), {above} the "
            f"{majority:.3f} of the largest class; {_against_counts(probes, pairs[name], adjusted.get(name))}."
        )
        found.append(Finding(NAME, name, text, holds=low > majority))
    return found


def _accuracies(probes: Sequence[Plain], kind: str) -> list[float]:
    return [one[kind]["accuracy"] for one in probes]


def _against_counts(probes: Sequence[Plain], paired: PairedDifference, p: float | None) -> str:
    """What the seeds say of activations against counts of tokens."""
    counts = sum(one["frequencies"]["accuracy"] for one in probes) / len(probes)
    alone = f"counts of tokens alone give {counts:.2f}"
    if p is None:
        return f"{alone} (too few seeds to compare)"
    size = f"{signed(paired.difference.mean)}, {p_clause(p)} after Holm's correction"
    if p >= LEVEL:
        return f"{alone}: no difference seen at this budget ({size})"
    return f"{alone}: activations give {'more' if paired.difference.mean > 0 else 'less'} ({size})"


def _mean(read: Read, runs: Iterable[Plain]) -> float | None:
    """The mean over runs that have the number; None where none has."""
    values = [value for run in runs if (value := read(run)) is not None]
    return sum(values) / len(values) if values else None


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _cell(accuracy: float | None, nats: float | None) -> str:
    return NONE if accuracy is None or nats is None else f"{accuracy:.3f} ({nats:.3f})"
