"""The loss by what a model sees: more context, positions in the window, examples of a passage, one token."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from vitral.core.language import N_, _
from vitral.core.text import capital, nats
from vitral.evaluation import bigram_entropy, entropy_by_place
from vitral.evaluation.losses import final_split
from vitral.inspection.positions import few_shot_losses, loss_by_context, loss_by_position
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Course,
    Fixed,
    Means,
    Note,
    Plain,
    Probe,
    Quantity,
    Range,
    Rows,
    Setting,
    StudyResult,
    Trained,
    View,
    Within,
    difference,
    require_causal_lm,
)

NATS = "nats per token"

# ---------------------------------------------------------------- the amount of context

TARGETS = (20_000, 50_000, 200_000)
NEAR = 16
"""Tokens of context that count as near."""
NEARBY = Quantity(
    N_("loss from {n} tokens of context").format(n=NEAR),
    lambda run: dict(zip(run["context"], run["nats"], strict=True)).get(NEAR),
    NATS,
)
WHOLE = Quantity(N_("loss from the whole context"), "nats/-1", NATS)
GAIN = replace(
    difference(N_("gain from context beyond {n} tokens").format(n=NEAR), NEARBY, WHOLE), better="higher", digits=4
)


def by_context(trained: Trained) -> Plain:
    """The loss by the amount of context on the test split."""
    require_causal_lm(trained)
    return loss_by_context(trained.model, trained.test, most_targets=trained.size(*TARGETS))


CONTEXT = Probe(
    "context",
    N_("Loss by the amount of context"),
    by_context,
    about=N_(
        "Every target is predicted from the tokens just before it, and from no others; the targets are the same at "
        "every amount (Khandelwal et al. 2018)."
    ),
    tables=[(NEARBY, WHOLE, GAIN)],
    contrasts=[Against([GAIN])],
    figure=Course(
        N_("Loss by context"),
        Axis(N_("tokens of context, at most"), log=True),
        Axis(N_("loss")),
        lambda run: zip(run["context"], run["nats"], strict=True),
    ),
)

# ---------------------------------------------------------------- the position in the window

TOKENS = (60_000, 160_000, 400_000)
LONGER = (2, 4, 4)  # context lengths in the longest window
KEEPS = 0.05
"""Nats by which the loss may be higher beyond the trained length and still count as kept."""


def by_position(trained: Trained) -> Plain:
    """Losses on the test split at every position of the context and at every quarter of longer windows."""
    require_causal_lm(trained)
    tokens, multiple = trained.size(*TOKENS), trained.size(*LONGER)
    return loss_by_position(trained.model, trained.test, most_tokens=tokens, multiple=multiple)


def _loss(name: str, key: str, positions: Sequence[int], *, whole: bool = False) -> Quantity:
    """The mean loss at those of these places that are scored; None where none is, or, if `whole`, not all are."""

    def read(run: Mapping[str, Any]) -> float | None:
        known = [
            nats for position, nats in enumerate(run[key]["nats"] or ()) if position in positions and nats is not None
        ]
        return fmean(known) if known and not (whole and len(known) < len(positions)) else None

    return Quantity(name, read, "nats", "lower")


def _positions(result: StudyResult, arms: Arms) -> View:
    """The loss along the window against the base's; the loss beyond the trained length against that at its end."""
    base, length = arms[0], max(arm.first["context_length"] for arm in arms)
    multiple = max(arm.first["beyond"]["length"] // arm.first["context_length"] for arm in arms)
    begin, end = _("loss in the first quarter of the window"), _("loss in the last quarter of the window")
    inside = (_loss(begin, "inside", range(length // 4)), _loss(end, "inside", range(3 * length // 4, length)))
    between = N_("loss at {begin:g}\N{EN DASH}{end} trained lengths")
    last, near, far, past = (
        _loss(_(between, begin=begin / 4, end=end // 4), "beyond", range(begin, end), whole=True)
        for begin, end in ((3, 4), (4, 8), (8, 4 * multiple), (4, 4 * multiple))
    )
    rise = difference(_("rise of the loss from 1 to {n} trained lengths", n=multiple), past, last)
    contrasts = Against([replace(rise, better="lower")], beside_alibi).of(result, arms)
    contrasts += [*Within(near, last).of(result, arms), *Within(far, last).of(result, arms)]
    for arm in arms[1:]:
        curves = [run["inside"]["nats"] for one in (base, arm) for run in one.runs.values()]
        shared = [position for position, losses in enumerate(zip(*curves, strict=False)) if None not in losses]
        ends = (shared[3 * len(shared) // 4 :], shared[: max(1, len(shared) // 4)])
        name = _("loss in the last less the first quarter")
        change = difference(name, *(_loss("", "inside", positions) for positions in ends))
        contrasts += Against([change]).of(result, [base, arm])
    return View(
        tables=[Means(arms, (*inside, last, near, far))],
        comparisons=contrasts,
        checks=Range(rise, high=KEEPS, expected=N_("at most {high:g}")).of(arms),
        notes=[_unread(arm) for arm in arms if not arm.values(rise)],
    )


def beside_alibi(result: StudyResult, arms: Arms) -> Iterable[tuple[ArmMeasures, ArmMeasures]]:
    """Every arm with that of ALiBi (Press et al. 2022), where there is one."""
    alibi = [arm for arm in arms if arm.config.get("model", {}).get("positions") == "alibi"]
    return ((arm, alibi[0]) for arm in arms if alibi and arm not in alibi)


def _unread(arm: ArmMeasures) -> Note:
    why = next((run["beyond"]["why"] for run in arm.runs.values() if "why" in run["beyond"]), None)
    text = N_("{arm}: no loss beyond {n} tokens ({why}).")
    why = _("not all of it is scored") if why is None else _(why)
    return Note(_(text, arm=capital(arm.title), n=arm.first["context_length"], why=why), arm.name)


BY_POSITION = Probe(
    "by-position",
    N_("Loss by position in the window"),
    by_position,
    figure=Course(
        N_("Beyond the trained length"),
        Axis(N_("position in a longer window, in trained lengths")),
        Axis(N_("loss (nats)")),
        lambda run: [((quarter + 0.5) / 4, nats) for quarter, nats in enumerate(run["beyond"]["nats"] or ())],
    ),
    more=_positions,
)

# ---------------------------------------------------------------- examples of a passage

PASSAGES = (200, 400, 1000)
MOST_EXAMPLES = 3
COUNTS = range(MOST_EXAMPLES + 1)
SAME, SHUFFLED = (
    [Quantity(title.format(n=count), f"losses/{kind}/{count}", NATS, "lower") for count in COUNTS]
    for kind, title in (
        ("same", N_("loss after {n} examples of the passage")),
        ("shuffled", N_("loss after {n} examples with their tokens shuffled")),
    )
)
CHANGE = N_("change of the loss by {n} examples of the passage")
CHANGES = [Quantity(CHANGE.format(n=count), f"effects/same/{count}/increase", NATS, "lower") for count in COUNTS]
CONTROL = Quantity(
    N_("change of the loss by {n} shuffled examples").format(n=MOST_EXAMPLES),
    f"effects/shuffled/{MOST_EXAMPLES}/increase",
    NATS,
)


def few_shot(trained: Trained) -> Plain:
    """Losses of test passages after 0 to 3 examples of each kind; four passages fill the context."""
    require_causal_lm(trained)
    length = trained.model.config.context_length // (MOST_EXAMPLES + 1)
    return few_shot_losses(
        trained.model, trained.test, length=length, passages=trained.size(*PASSAGES), most_examples=MOST_EXAMPLES
    )


FEW_SHOT = Probe(
    "few-shot",
    N_("Examples in a prompt"),
    few_shot,
    about=N_(
        "{passages} test passages of {length} tokens, each at the end of a window that holds three passages before it. "
        "Examples are the same passage; the controls are the same passage with its tokens in random order, and other "
        "passages of the text. All windows are equally long."
    ),
    tables=[SAME, SHUFFLED[1:]],
    contrasts=[Fixed((CHANGES[1], CHANGES[-1]), 0.0, N_("other passages")), Within(CHANGES[-1], CONTROL)],
    figure=Course(
        N_("Change of the loss by examples of the passage"),
        Axis(N_("examples in the prompt"), ticks=list(COUNTS)),
        Axis(N_("change of the loss (nats per token)")),
        lambda run: [(count, one.read(run)) for count, one in zip(COUNTS, CHANGES, strict=True)],
    ),
)

# ---------------------------------------------------------------- one token

FLOORS = {
    "given_token": N_("given the token, a floor without positions"),
    "given_place": N_("given the token and its position in the window, a floor with learned or sinusoidal positions"),
}


def one_token_floor(setting: Setting) -> Plain:
    """The entropy of the next token given the current one, and given its position in the window too.

    Without attention a position sees its token, and with a table or sines of positions also its place in the window.
    The loss of any such function on a text is at least the text's own entropy of the next token given both (Gibbs'
    inequality). Arms are compared with it in `vitral.studies.losses`.
    """
    split, time = final_split(setting.dataset), setting.base.model.context_length
    token = bigram_entropy(split, setting.dataset.tokenizer.vocab_size)
    return {"context_length": time, "given_token": token, "given_place": entropy_by_place(split, time)}


def _floors(result: StudyResult, measured: Plain) -> View:
    rows = [(_(name), nats(measured[key])) for key, name in FLOORS.items()]
    return View(tables=[Rows(_("In nats per token."), (_("entropy of the next token"), _("nats per token")), rows)])


FLOOR = Probe(
    "one-token-floor",
    N_("Floors of a position that sees one token"),
    one_token_floor,
    about=N_(
        "Entropy of the next token by the counts of the test text itself, in windows of {context_length} tokens. "
        "Without attention each position sees its own token and, where positions are embedded, its place in the "
        "window; no function of these has a lower loss on this text. The floors are not reached: a model does not know "
        "the counts of the test text, and the difference between the two floors may be chance in the counts."
    ),
    more=_floors,
    of_runs=False,
)
PROBES = (CONTEXT, BY_POSITION, FEW_SHOT, FLOOR)
