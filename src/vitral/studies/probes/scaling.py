"""Loss against size, amount of text and tokens: scaling laws, amounts of one text, kinds of its tokens."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from vitral.core.language import N_, _, number
from vitral.core.text import big, nats, p_clause, signed
from vitral.data.batches import thinned
from vitral.evaluation import evaluate_split
from vitral.inspection.text_units import characters_per_token, has_common, known_text, text_contents, text_units
from vitral.model.counts import parameter_table
from vitral.studies.losses import loss_quantity
from vitral.studies.probe import (
    LEVEL,
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Check,
    Comparison,
    Line,
    Lines,
    Means,
    Plain,
    Probe,
    Quantity,
    Rows,
    StudyResult,
    Trained,
    View,
    difference,
    exponents,
    mean_curve,
    slopes,
    to_fixed,
)
from vitral.studies.scaling import Fit, Terms, fit_law, law_row
from vitral.training.costs import step_flops

KINDS_OF_TOKENS = {"char": N_("characters"), "byte": N_("bytes"), "bpe": N_("byte pairs")}
"""By name of the tokenizer, as `_` translates them."""


def with_losses(result: StudyResult, arms: Arms) -> list[ArmMeasures]:
    """The arms with two more numbers for each run; runs without a test loss and arms without such a run are left out.

    "loss" is the test loss in the study's unit, "factor" converts nats per token to that unit.
    """
    arms_with_losses = []
    for arm in arms:
        trained = result.arm(arm.name)
        losses, more = trained.losses, {"factor": trained.factor}
        runs = {seed: {**run, "loss": losses[seed], **more} for seed, run in arm.runs.items() if seed in losses}
        arms_with_losses += [replace(arm, runs=runs)] if runs else []
    return arms_with_losses


def curve_over(label: str, arms: Arms, x: Quantity, y: Quantity) -> Line:
    """The mean of one quantity against that of another, a point for each arm that has both."""
    points = {at: list(arm.values(y).values()) for arm in arms if (at := arm.mean(x)) is not None}
    return mean_curve(label, {at: values for at, values in points.items() if values})


# ---------------------------------------------------------------- scaling laws

SUM, PRODUCT = "E + A/N^α + B/D^β", "E + A/(N^α D^β)"
PREDICTED = ("ten-times", "more-tokens")
"""Arms whose name begins with one of these are left out of the fits and predicted by them."""
TOO_WIDE = 0.25
"""A predicted interval wider than this share of the loss is no test of the law."""
KEYS = {"N": "size", "D": "amount", "C": "compute"}
"""Of a run, by the letters of the laws."""
LOSS = Quantity(N_("test loss"), "nats_per_character", N_("nats per character"))
PER_LOSS = Quantity("", lambda run: 1 / run["nats_per_character"])
METHOD = N_(
    "N: parameters of the blocks, without embeddings and head. D: tokens trained on. C: counted operations. Losses in "
    "nats per character. L(N) is fitted at the largest D, L(D) at the largest N, L(C) to the arms that no arm of as "
    "little compute beats; its interval ignores that choice. Each is (x_c/x)^α without a floor (Kaplan et al. 2020, "
    "equations 1.1 to 1.3), since a grid of few values cannot separate a floor from a small exponent. The joint laws "
    "have a floor E where the runs show one: {sum} (Hoffmann et al. 2022, equation 2) and, with an interaction, "
    "{product}. Least squares on log L; intervals are 95% Student intervals from the Jacobian, and too narrow "
    "where a law leaves more than the scatter between seeds. An exponent is determined if its interval extends at most "
    "half of it to either side. Kaplan et al. found α_N 0.076, α_D 0.095, α_C 0.050 for byte pairs of web text; their "
    "L(N) is the limit of unlimited data and training, their L(D) that of unlimited size. Here L(N) is at {amount} "
    "tokens and L(D) at {size} parameters, so both exponents are of those slices alone, and a number near theirs "
    "confirms nothing. The law of both quantities is the one to compare."
)
TOKENS = N_(
    "The same sizes and steps with other tokens, in nats per character of the same test text: the exponents at the "
    "places of the grid that both have are compared seed by seed. A token of another length covers another number of "
    "characters and a head of another size costs other operations, so equal steps are not equal compute. D counts each "
    "arm's own tokens."
)


def as_a_point(trained: Trained) -> Plain:
    """The run as a point: "size" N, "amount" D, "compute" C in operations, "characters_per_token" of the test split."""
    dataset, config = trained.dataset, trained.run.sealed.config
    vocab_size = dataset.tokenizer.vocab_size
    table = parameter_table(config.model, vocab_size)
    return {
        "size": sum(row.count for row in table if row.part not in ("embedding", "head")),
        "amount": trained.num_tokens,
        "compute": config.training.steps * step_flops(config, vocab_size),
        "characters_per_token": characters_per_token(dataset.splits["test"], dataset.tokenizer),
    }


class Law(NamedTuple):
    """A law fitted to the runs of some arms."""

    formula: str
    fit: Fit
    arms: Arms


def _laws(result: StudyResult, arms: Arms) -> View:
    """Laws of the grid, predictions of the larger models, and exponents with other tokens."""
    arms, own = [_per_character(result, arm) for arm in with_losses(result, arms)], _tokens(result.base)
    later, grid, others = list[ArmMeasures](), list[ArmMeasures](), dict[str, list[ArmMeasures]]()
    for arm in arms:
        same, predicted = _tokens(arm.config) == own, arm.name.startswith(PREDICTED)
        (later if predicted else grid if same else others.setdefault(_tokens(arm.config), [])).append(arm)
    if any(len({arm.first[key] for arm in grid}) < 2 for key in ("size", "amount")):
        return View()
    slices = {"N": at_most(grid, "amount"), "D": at_most(grid, "size"), "C": front(grid)}
    single = [law for name, each in slices.items() for law in fitted(f"L({name})", each, [(name,)])]
    joint = [*fitted(SUM, grid, [(), ("N",), ("D",)]), *fitted(PRODUCT, grid, [(), ("N", "D")])]
    rows = [
        law_row(law.formula, {"N": "α", "D": "β"}[name] if law in joint else f"α_{name}", law.fit, name)
        for law in (*single, *joint)
        for name in law.fit.exponents
    ]
    caption = _(
        "Constant: x_c of (x_c/x)^α, or A and B of the sum. Misfit: standard deviation of the residuals of log L."
    )
    tables = [Rows(caption, tuple(rows[0]), [tuple(row.values()) for row in rows], prose=(0, 1))] if rows else []
    checks = [*map(misfit, joint)]
    if later and joint:
        table, predicted = _predictions(later, joint)
        tables, checks = [*tables, table], [*predicted, *checks]
    most = {key: big(max(arm.first[key] for arm in grid)) for key in ("amount", "size")}
    about = _(METHOD, sum=SUM, product=PRODUCT, **most)
    return View(
        f"{about} {_(TOKENS)}" if others else about,
        tables,
        _against_size(grid, joint),
        [one for tokens, each in others.items() for one in _exponents(own, grid, tokens, each)],
        [check for check in checks if check is not None],
    )


def _per_character(result: StudyResult, arm: ArmMeasures) -> ArmMeasures:
    """The arm with the loss of each run in nats per character."""

    def known(run: Plain) -> Plain:
        factor = math.log(2) if result.study.unit == FAIR_UNIT else 1 / run["characters_per_token"]
        return run | {"nats_per_character": run["loss"] * factor}

    return replace(arm, runs={seed: known(run) for seed, run in arm.runs.items()})


def _tokens(config: Mapping[str, Any]) -> str:
    """The name of a configuration's tokens."""
    kind: Mapping[str, Any] = config["corpus"]["tokenizer"]
    name = _(KINDS_OF_TOKENS.get(kind["name"]) or kind["name"])
    return f"{name} ({number(kind['vocab_size'], ',')})" if "vocab_size" in kind else name


def at_most(arms: Arms, key: str) -> list[ArmMeasures]:
    """The arms with the largest value of a number."""
    most = max(arm.first[key] for arm in arms)
    return [arm for arm in arms if arm.first[key] == most]


def front(grid: Arms) -> list[ArmMeasures]:
    """The arms that no arm of as little compute beats, by their means alone: single runs would select lucky ones."""
    unbeaten, best = list[ArmMeasures](), math.inf
    for loss, arm in sorted(
        ((arm.mean(LOSS) or 0.0, arm) for arm in grid), key=lambda one: (one[1].first["compute"], one[0])
    ):
        if loss < best:
            best = loss
            unbeaten.append(replace(arm, runs={0: arm.first | {"nats_per_character": loss}}))
    return unbeaten


def fitted(formula: str, arms: Arms, terms: Terms) -> list[Law]:
    """The law fitted to all runs of these arms; none where they are too few."""
    runs = [(arm.first, loss) for arm in arms for loss in arm.values(LOSS).values()]
    quantities = {name: [run[KEYS[name]] for run, _loss in runs] for name in dict.fromkeys(sum(terms, ()))}
    fit = fit_law(quantities, [loss for _run, loss in runs], terms)
    return [] if fit is None else [Law(formula, fit, arms)]


def misfit(law: Law) -> Check | None:
    """The F test of lack of fit (Fisher 1922): whether a law leaves more than the scatter between seeds.

    The variance that the law leaves among the means of arms over the variance between seeds. None where the seeds show
    no scatter, or the law has as many numbers as there are arms.
    """
    from scipy import stats

    groups = [[math.log(loss) for loss in arm.values(LOSS).values()] for arm in law.arms]
    freedom = sum(len(group) - 1 for group in groups)
    pure = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    freedoms = law.fit.freedom - freedom, freedom
    if not pure or min(freedoms) < 1:
        return None
    ratio = max(0.0, law.fit.spread**2 * law.fit.freedom - pure) / freedoms[0] / (pure / freedom)
    critical = float(stats.f.isf(LEVEL, *freedoms))
    expected = _(
        "at most {most:.2f} (lack of fit, {p}; residuals of {left:.2f}% against {scatter:.2f}% between seeds)",
        most=critical,
        p=p_clause(float(stats.f.sf(ratio, *freedoms))),
        left=100 * law.fit.spread,
        scatter=100 * math.sqrt(pure / freedom),
    )
    return Check(law.formula, _("variance left over that between seeds"), ratio, None, critical, expected)


def _predictions(later: Arms, joint: Sequence[Law]) -> tuple[Rows, list[Check]]:
    """By arm and law a row, and a check where the predicted interval is not too wide for a test."""
    rows, checks = [], []
    for arm, law in product(later, joint):
        own, sizes = arm.mean(LOSS) or 0.0, {name: arm.first[KEYS[name]] for name in "ND"}
        predicted = law.fit.predict(sizes)
        cells = predicted.text, nats(own), f"{signed(100 * (own / predicted.value - 1), 1)}%"
        rows.append((f"{arm.title}, {law.formula}", *map(big, sizes.values()), *cells))
        if predicted.high - predicted.low <= TOO_WIDE * predicted.value:
            what = _("mean loss beside the interval of one run predicted by {law}", law=law.formula)
            limits = predicted.low, predicted.high, predicted.span, LOSS.unit
            checks.append(Check(arm.title, what, own, *limits, arm=arm.name))
    caption = _("Predicted from the grid alone, then trained; nats per character, means over seeds.")
    words = _("predicted (95% interval of one run)"), _("trained"), _("off")
    return Rows(caption, (_("arm and law"), "N", "D", *words), rows), checks


def _exponents(own: str, grid: Arms, tokens: str, others: Arms) -> list[Comparison]:
    """The exponents of L(N) and L(D) with other tokens against those with the base's at the same places."""
    node = lambda arm: (arm.first["size"], arm.first["amount"])  # noqa: E731
    shared = {*map(node, grid)} & {*map(node, others)}
    sides, comparisons = [[arm for arm in arms if node(arm) in shared] for arms in (others, grid)], list[Comparison]()
    for name, fixed in (("N", "amount"), ("D", "size")) if shared else ():
        values, rivals = (exponents(at_most(arms, fixed), KEYS[name], PER_LOSS) for arms in sides)
        quantity = Quantity(_("exponent {symbol} of {law}", symbol=f"α_{name}", law=f"L({name})"))
        comparisons.append(Comparison(tokens, own, quantity, values, rivals))
    return comparisons


def _against_size(grid: Arms, joint: Sequence[Law]) -> Lines:
    """The loss against size, for each number of tokens, with the joint law that fits better."""
    law = min(joint, key=lambda law: law.fit.spread, default=None)
    sizes, curves = [arm.first["size"] for arm in grid], []
    values = np.geomspace(min(sizes), max(sizes), 30).tolist()
    for fixed in sorted({arm.first["amount"] for arm in grid}):
        own = sorted((arm.first["size"], arm.mean(LOSS) or 0.0) for arm in grid if arm.first["amount"] == fixed)
        curves.append(Line(f"D = {big(fixed)}", [size for size, _ in own], [loss for _, loss in own]))
        if law is not None:
            course = [law.fit.predict({"N": n, "D": fixed}).value for n in values]
            curves.append(Line("", values, course, look="theory"))
    axes = Axis(_("parameters in the blocks, N"), log=True), Axis(_("test loss (nats per character)"))
    note = "" if law is None else _("Thin lines: {law}.", law=law.formula)
    return Lines(_("Loss against size"), *axes, curves, note=note)


# ---------------------------------------------------------------- amounts of one text

MEASURED = (150_000, 300_000, 1_000_000)
"""Tokens of known text on which the loss is measured."""
AMOUNT = Quantity(N_("training text"), "tokens", "tokens", digits=0)
KNOWN = N_(
    "Losses in {unit}, means over seeds. Known text is text the run was trained on, read without dropout: the same "
    "sixty-fourth of the text."
)
KNOWN_ITS_OWN = N_(
    "Losses in {unit}, means over seeds. Known text is text the run was trained on, read without dropout: the same "
    "sixty-fourth of the text; its own for {arms}."
)
CONTENTS = (
    Quantity(N_("bytes"), "bytes", digits=0),
    Quantity(N_("passes"), "passes", digits=2),
    Quantity(N_("words of the test text seen"), lambda run: 100 * run["words_seen"], "%", digits=1),
)
_contents = lru_cache(maxsize=2)(text_contents)


def amounts(trained: Trained) -> Plain:
    """The training text and the loss on it.

    The text trained on is the same for all amounts, since a smaller share is part of every larger one: a difference
    between them is not one between texts.

    Returns:
        "tokens" of the training split and "passes" over it; `text_contents`; "train_loss" in nats per token, without
        dropout: of any share on the common one, of passages on all of them.
    """
    dataset, known = trained.dataset, thinned(known_text(trained.dataset), trained.size(*MEASURED))
    num_tokens = len(dataset.splits["train"].tokens)
    return {
        "tokens": num_tokens,
        **_contents(dataset),
        "passes": trained.num_tokens / num_tokens,
        "train_loss": evaluate_split(trained.model, known, dataset.tokenizer).loss,
    }


def _of_amounts(result: StudyResult, arms: Arms) -> View:
    """Contents and losses by arm, the least text against the most."""
    arms, loss = with_losses(result, arms), loss_quantity(result)
    if not arms:
        return View()
    known = replace(loss, name=_("loss on known text"), source=lambda run: run["train_loss"] * run["factor"])
    gap = replace(difference(_("test loss above known text"), loss, known), better=loss.better)
    own = ", ".join(arm.title for arm in arms if not has_common(arm.config["corpus"]))
    caption = _(KNOWN_ITS_OWN if own else KNOWN, unit=_(result.study.unit), arms=own)
    shares = sorted((arm for arm in arms if _same_but_share(arm, result.base)), key=lambda arm: arm.first["tokens"])
    figure = None
    if len(shares) > 1:
        axes = Axis(_("training text (tokens)"), log=True), Axis(_("loss ({unit})", unit=_(loss.unit)))
        figure = Lines(_("More text, the same steps"), *axes, [curve_over(_("test split"), shares, AMOUNT, loss)])
    common = [arm for arm in shares if has_common(arm.config["corpus"])]
    compared = Against([gap]).of(result, [common[-1], common[0]]) if len(common) > 1 else []
    return View("", [Means(arms, (*CONTENTS, known, loss, gap), caption)], figure, compared)


def _same_but_share(arm: ArmMeasures, base: Mapping[str, Any]) -> bool:
    """Whether the arm's configuration is the base's except for the share of the text."""
    one, other = ({**config, "corpus": {**config["corpus"], "share": None}} for config in (arm.config, base))
    return one == other


# ---------------------------------------------------------------- tokens of one text

FAIR_UNIT = "bits per character"
"""The unit in which losses of different tokens can be compared."""
CAPTIONS = {
    True: N_("Tokens, and the loss with them. Means over seeds; losses in {unit}."),
    False: N_("Tokens; losses per token of different tokens do not compare. Means over seeds; losses in {unit}."),
}
"""By whether losses of different tokens can be compared."""
VOCABULARY = Quantity(N_("vocabulary"), "vocab_size", digits=0)
UNITS = (
    VOCABULARY,
    Quantity(N_("characters per token"), "characters_per_token", digits=2),
    Quantity(N_("window"), "context_characters", "characters", digits=0),
    Quantity(N_("parameters in embedding and head"), lambda run: 100 * run["token_share"], "%", digits=0),
    Quantity(N_("trained on"), "tokens", "tokens", digits=0),
    Quantity(N_("trained on"), "characters", "characters", digits=0),
    Quantity(N_("passes"), "passes", digits=2),
    Quantity(N_("median token seen"), "median_seen", N_("times"), digits=0),
)


def units(trained: Trained) -> Plain:
    """See `text_units`; "tokens" are those of the run's training."""
    return text_units(trained.model.config, trained.dataset, trained.num_tokens)


def _of_units(result: StudyResult, arms: Arms) -> View:
    """The units by arm; where losses are comparable, the longest tokens against the others, and the slope."""
    arms, loss = with_losses(result, arms), loss_quantity(result)
    fair, unit = result.study.unit == FAIR_UNIT, _(result.study.unit)
    view = View(tables=[Means(arms, (*UNITS, loss), _(CAPTIONS[fair], unit=unit))] if arms else ())
    arms = [arm for arm in arms if _only_tokens(result, arm)]
    if not fair or len(arms) < 2:
        return view
    longest = max(arms, key=lambda arm: arm.first["characters_per_token"])
    pairs = [pair for arm in arms if arm is not longest for pair in Against([loss]).of(result, [arm, longest])]
    kinds = dict[str, list[ArmMeasures]]()
    for arm in arms:
        kinds.setdefault(arm.config["corpus"]["tokenizer"]["name"], []).append(arm)
    curves = [curve_over(_(KINDS_OF_TOKENS.get(kind, kind)), each, VOCABULARY, loss) for kind, each in kinds.items()]
    axes = Axis(_("vocabulary (tokens)"), log=True), Axis(_("test loss ({unit})", unit=unit))
    figure = Lines(_("Loss at equal compute"), *axes, curves)
    pairs += _doublings(kinds.get("bpe", []), loss)
    return view._replace(figure=figure, comparisons=pairs)


def _only_tokens(result: StudyResult, arm: ArmMeasures) -> bool:
    """Whether the arm differs from the base in its tokens alone, at equal compute."""
    design = result.arm(arm.name).arm
    return arm.name == result.arms[0].arm.name or (design.match == "flops" and design.changes.keys() == {"corpus"})


def _doublings(arms: Arms, loss: Quantity) -> list[Comparison]:
    """The slope of the loss against log2 of the vocabulary, seed by seed, against zero."""
    sizes = [math.log2(arm.first["vocab_size"]) for arm in arms]
    fitted_slopes = slopes(sizes, [arm.values(loss) for arm in arms])
    if not fitted_slopes:
        return []
    slope = replace(loss, name=_("test loss per doubling of the vocabulary"))
    subject = _("{first} to {last}", first=arms[0].title, last=arms[-1].title)
    return [to_fixed(subject, 0.0, _("no slope"), slope, fitted_slopes)]


PROBES = (
    Probe("scaling-fit", N_("Scaling laws"), as_a_point, more=_laws),
    Probe("amounts", N_("Amount and variety of the text"), amounts, more=_of_amounts),
    Probe("text-units", N_("Tokens and text"), units, more=_of_units),
)
