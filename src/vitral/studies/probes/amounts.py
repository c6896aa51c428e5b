"""Loss by amount and variety of the training text: on the test split and on text the run was trained on.

The text trained on is the same for all amounts, since a smaller share is part of every larger one: a difference between
them is not one between texts.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data.batches import thinned
from vitral.evaluation import evaluate_split
from vitral.inspection.text_units import has_common, known_text, text_contents
from vitral.studies.law_table import law_columns, law_row
from vitral.studies.losses import baseline_arm, loss_quantity, too_early
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Curve,
    Lines,
    Means,
    Plain,
    Probe,
    Quantity,
    Rows,
    StudyResult,
    Trained,
    View,
    curve_over,
    difference,
    with_losses,
)
from vitral.studies.scaling import Fit, fit_law

_MEASURED = (150_000, 300_000, 1_000_000)
_contents = lru_cache(maxsize=2)(text_contents)
AMOUNT = Quantity(N_("training text"), "tokens", "tokens", digits=0)
LAW = "E + (D_c/D)^α"
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


def measure(trained: Trained) -> Plain:
    """The training text and the loss on it.

    Returns:
        "tokens" of the training split and "passes" over it; `text_contents`; "train_loss" in nats per token, without
        dropout: of any share on the common one, of passages on all of them.
    """
    dataset, known = trained.dataset, thinned(known_text(trained.dataset), trained.size(*_MEASURED))
    num_tokens = len(dataset.splits["train"].tokens)
    return {
        "tokens": num_tokens,
        **_contents(dataset),
        "passes": trained.num_tokens / num_tokens,
        "train_loss": evaluate_split(trained.model, known, dataset.tokenizer).loss,
    }


def _view(result: StudyResult, arms: Arms) -> View:
    """Contents and losses by arm, the law of the amount, the least text against the most, arms with a further text."""
    arms, loss = with_losses(result, arms), replace(loss_quantity(result), source="loss")
    if not arms:
        return View()
    known = replace(loss, name=_("loss on known text"), source=lambda run: run["train_loss"] * run["factor"])
    gap = replace(difference(_("test loss above known text"), loss, known), better=loss.better)
    own = ", ".join(arm.title for arm in arms if not has_common(arm.config["corpus"]))
    caption = _(KNOWN_ITS_OWN if own else KNOWN, unit=_(result.study.unit), arms=own)
    figure, tables = None, list[Means | Rows]([Means(arms, (*CONTENTS, known, loss, gap), caption)])
    shares = sorted((arm for arm in arms if _same_but_share(arm, result.base)), key=lambda arm: arm.first["tokens"])
    if len(shares) > 1:
        law = _law(shares, loss)
        about = _("The law of the amount D, in tokens: too few runs to fit it.")
        if law is not None:
            about = _("The law of the amount D, in tokens.")
        rows = [] if law is None else [law_row(LAW, "α", law, "D", law.constant("D"))]
        tables.append(Rows(about, law_columns(), rows, prose=(0, 1)))
        figure = _figure(shares, loss, law)
    common = [arm for arm in shares if has_common(arm.config["corpus"])]
    compared = Against([gap]).of(result, [common[-1], common[0]]) if len(common) > 1 else []
    for arm, other in product(arms, shares):
        if _adds_a_text(arm, other) and other.name != baseline_arm(result, result.arm(arm.name)).arm.name:
            early = too_early(result, result.arm(other.name))
            compared += [replace(one, excluded=early) for one in Against([loss]).of(result, [other, arm])]
    return View("", tables, figure, compared)


def _same_but_share(arm: ArmMeasures, base: Mapping[str, Any]) -> bool:
    """Whether the arm's configuration is the base's except for the share of the text."""
    one, other = ({**config, "corpus": {**config["corpus"], "share": None}} for config in (arm.config, base))
    return one == other


def _adds_a_text(arm: ArmMeasures, other: ArmMeasures) -> bool:
    """Whether the arm has the other's text and a further one."""
    one, two = ({**each.config["corpus"]} for each in (arm, other))
    return bool(one.pop("also", None)) and all(one.get(key) == two.get(key) for key in ("share", "passages"))


def _law(shares: Arms, loss: Quantity) -> Fit | None:
    """L(D) = E + (D_c/D)^α over all runs of the shares; None where they are too few."""
    runs = [(float(arm.first["tokens"]), value) for arm in shares for value in arm.values(loss).values()]
    try:
        return fit_law({"D": [amount for amount, _ in runs]}, [value for _, value in runs])
    except UsageError:
        return None


def _figure(shares: Arms, loss: Quantity, law: Fit | None) -> Lines:
    """Test loss against the amount, with the law where it is determined."""
    curves = [curve_over(_("test split"), shares, AMOUNT, loss)]
    if law is not None and law.exponent("D").determined:
        places = np.geomspace(curves[0].x[0], curves[0].x[-1], 40).tolist()
        name = _("fitted {law}", law="L(D)")
        curves.append(Curve(name, places, [law.loss({"D": place}) for place in places], theory=True))
    axes = Axis(_("training text (tokens)"), log=True), Axis(_("loss ({unit})", unit=_(loss.unit)))
    return Lines(_("More text, the same steps"), *axes, curves)


PROBE = Probe("amounts", N_("Amount and variety of the text"), measure, more=_view, seconds=(4, 8, 20))
