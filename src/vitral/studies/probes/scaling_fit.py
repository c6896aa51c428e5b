"""The scaling laws of a study's runs, what they predict of a larger model, and what the tokens change about them."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from vitral.figures.sections import Heading, Paragraph, Section
from vitral.model import ModelConfig, cost
from vitral.model.counts import parameter_table
from vitral.studies.optimum import contrast
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot, RunProbe, Trained
from vitral.studies.probes.scaling_fit_shown import (
    HOW,
    compute_plot,
    ends,
    law_table,
    optimum_sections,
    others_text,
    prediction_plot,
    prediction_table,
    residual_table,
    size_plot,
    told,
)
from vitral.studies.probes.scaling_runs import Laws, Run, fit_grid, gather, joint_laws, token_name
from vitral.studies.probes.scaling_tokens import constants, token_table
from vitral.studies.probes.text_units import characters_per_token
from vitral.studies.results import StudyResult
from vitral.studies.statistics import holm
from vitral.studies.verdict import LEVEL, Finding
from vitral.studies.wording import nats, p_clause

NAME = "scaling-fit"
PREDICTED = "ten-times"
"""Arms whose name begins with this are left out of the fits and predicted by them."""
TOO_WIDE = 0.25
"""A predicted interval wider than this share of the loss is no test of the law."""


def measure(trained: Trained) -> Plain:
    """Where the run stands: "size" N, "amount" D, "compute" C in operations, and "characters_per_token" of the test."""
    dataset, config = trained.dataset, trained.run.config
    model, training = ModelConfig.parse(config["model"]), config["training"]
    vocab_size = dataset.tokenizer.vocab_size
    tokens = training["steps"] * training["batch_size"] * training["accumulation"] * model.context_length
    costs = cost(model, vocab_size)
    rows = [row for row in parameter_table(model, vocab_size) if row.part not in ("embedding", "head")]
    return {
        "size": sum(row.count for row in rows),
        "amount": tokens,
        "compute": tokens * (costs.forward_flops + costs.backward_flops),
        "characters_per_token": characters_per_token(dataset.splits["test"], dataset.tokenizer),
    }


def show(result: StudyResult, measured: ByRun) -> Exhibit:
    """Laws with their constants, residuals, predictions, the compute-optimal line, and other tokens beside it."""
    runs = gather(result, measured)
    own = token_name(result.arms[0].config["corpus"]["tokenizer"])
    grid = [run for run in runs if run.tokens == own and not run.arm.startswith(PREDICTED)]
    later = [run for run in runs if run.tokens == own and run.arm.startswith(PREDICTED)]
    others: dict[str, list[Run]] = {}
    for run in runs:
        if run.tokens != own and not run.arm.startswith(PREDICTED):
            others.setdefault(run.tokens, []).append(run)
    if len({run.size for run in grid}) < 2 or len({run.amount for run in grid}) < 2:
        return Exhibit()
    laws = fit_grid(grid)
    sections: list[Section | Plot] = [Heading("The laws"), Paragraph(HOW), law_table(laws)]
    sections += [size_plot(grid, laws), compute_plot(grid, laws), residual_table(grid, laws)]
    sections += optimum_sections(grid, laws)
    if later and joint_laws(laws):
        sections += [
            Heading("A model ten times larger", 3),
            prediction_table(later, laws),
            prediction_plot(later, laws),
        ]
    if others:
        tables = [token_table(grid, each) for each in others.values()]
        sections += [Heading("Other tokens", 3), Paragraph(others_text(tuple(others))), *tables]
    findings = [*_predictions(later, laws), *_exponents(laws), *_misfit(grid, laws), *_moved(grid, others)]
    return Exhibit(tuple(sections), tuple(findings))


def _predictions(later: Sequence[Run], laws: Laws) -> "list[Finding]":
    """Whether each law's interval holds the runs that were trained after."""
    findings = []
    for name in dict.fromkeys(run.arm for run in later):
        runs = [run for run in later if run.arm == name]
        for form, law in joint_laws(laws):
            predicted = law.predict({"N": runs[0].size, "D": runs[0].amount})
            inside = [predicted.low <= run.loss <= predicted.high for run in runs]
            width = (predicted.high - predicted.low) / predicted.value
            held = "held all" if all(inside) else "held none" if not any(inside) else f"held {sum(inside)}"
            text = (
                f"{runs[0].title[:1].upper()}{runs[0].title[1:]}: {form}, fitted to the grid, predicts "
                f"{nats(predicted.value)} nats per character, 95% interval {ends(predicted)} ({100 * width:.0f}% "
                f"wide); trained: {', '.join(nats(run.loss) for run in runs)}. The interval {held} of {len(runs)}."
            )
            if width > TOO_WIDE:
                text = f"{text} So wide an interval tests nothing: these runs do not determine that law."
            clear = width <= TOO_WIDE and all(inside) == any(inside)
            findings.append(_finding(name, text, all(inside) if clear else None))
    return findings


def _exponents(laws: Laws) -> "list[Finding]":
    """Each exponent with its interval, or that it is not determined."""
    laws_in = [(law.label, law.name, law.fit) for law in laws.singles]
    laws_in += [(form, name, law) for form, law in joint_laws(laws) for name in ("N", "D")]
    firm, loose = [], []
    for label, name, law in laws_in:
        exponent = law.exponent(name)
        value, interval, determined = told(exponent)
        text = f"{label} in {name}: {value} ({interval})"
        (firm if determined == "yes" else loose).append(text)
    findings = []
    if firm:
        findings.append(_finding("", f"Exponents these runs determine, with 95% intervals: {'; '.join(firm)}.", True))
    if loose:
        findings.append(_finding("", f"Exponents these runs do not determine: {'; '.join(loose)}."))
    return findings


def _misfit(grid: Sequence[Run], laws: Laws) -> "list[Finding]":
    """Whether a joint law leaves more than the scatter between seeds: the F test of lack of fit (Fisher 1922)."""
    groups = [[math.log(run.loss) for run in grid if run.arm == arm] for arm in dict.fromkeys(run.arm for run in grid)]
    freedom = sum(len(group) - 1 for group in groups)
    pure = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    if not freedom or not pure:
        return []
    from scipy import stats

    findings = []
    for form, law in joint_laws(laws):
        left, lacking = law.spread**2 * law.freedom - pure, law.freedom - freedom
        if lacking < 1:  # as many numbers as places: there is nothing they could miss
            continue
        p = float(stats.f.sf(max(0.0, left) / lacking / (pure / freedom), lacking, freedom))
        missed = p < LEVEL
        how = "misses systematically, so its intervals are too sure" if missed else "fits as well as seeds repeat"
        sizes = f"residuals of {100 * law.spread:.2f}% against {100 * math.sqrt(pure / freedom):.2f}% between seeds"
        findings.append(_finding("", f"{form} {how}: {sizes}, lack of fit {p_clause(p)}.", not missed))
    return findings


def _moved(grid: Sequence[Run], others: Mapping[str, Sequence[Run]]) -> "list[Finding]":
    """Whether the tokens move a constant: Welch's test of two fits, with Holm's correction over all of them."""
    made = []
    for tokens, runs in others.items():
        for constant in constants(grid, runs):
            estimates, fits = constant.estimates, constant.fits
            if not (fits[0] and fits[1] and estimates[0] and estimates[1]) or not constant.bounded:
                continue
            gap, p = contrast(estimates[0], estimates[1], (fits[0].freedom, fits[1].freedom))
            made.append((tokens, constant, gap, p))
    findings, alike = [], {}
    over = f"after Holm's correction over {len(made)}"
    for (tokens, constant, gap, _), p in zip(made, holm([p for *_, p in made]), strict=True):
        if p >= LEVEL:
            alike.setdefault(tokens, []).append(f"{constant.title} ({constant.difference(gap)})")
            continue
        told_one, told_two = constant.cells()
        text = (
            f"{constant.title} is {told_two} with {tokens} and {told_one} with {grid[0].tokens}: "
            f"{constant.difference(gap)}, {p_clause(p)} {over}: the tokens move it."
        )
        findings.append(_finding("", text, True))
    for tokens, constants_alike in alike.items():
        text = f"Between {tokens} and {grid[0].tokens} no difference is seen at this budget, {over}, in"
        findings.append(_finding("", f"{text} {'; '.join(constants_alike)}.", False))
    return findings


def _finding(arm: str, text: str, holds: bool | None = None) -> "Finding":
    return Finding(NAME, arm, text, holds)


SCALING_FIT = RunProbe(NAME, measure, show, seconds={"quick": 0.1, "standard": 0.1, "full": 0.1})
