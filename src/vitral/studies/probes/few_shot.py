"""The probe `few-shot`: whether a passage is predicted better after examples of it than after controls."""

from vitral.core.language import N_, _
from vitral.figures.lines import Axis
from vitral.figures.sections import Heading
from vitral.inspection import few_shot_losses
from vitral.studies import probe
from vitral.studies.claims import to_fixed
from vitral.studies.probe import Arms, Plain, Quantity, StudyResult, Trained, View

PASSAGES = (200, 400, 1000)
MOST_EXAMPLES = 3
NATS = "nats per token"
COUNTS = range(MOST_EXAMPLES + 1)
SAME, SHUFFLED = (
    [Quantity(title.format(n=count), f"losses/{kind}/{count}", NATS, "lower") for count in COUNTS]
    for kind, title in (
        ("same", N_("loss after {n} examples of the passage")),
        ("shuffled", N_("loss after {n} examples with their tokens shuffled")),
    )
)
CHANGES = {
    kind: [Quantity(title.format(n=count), f"effects/{kind}/{count}/increase", NATS, "lower") for count in COUNTS]
    for kind, title in (
        ("same", N_("change of the loss by {n} examples of the passage")),
        ("shuffled", N_("change of the loss by {n} shuffled examples")),
    )
}


def measure(trained: Trained) -> Plain:
    """Losses of test passages after 0 to 3 examples of each kind; four passages fill the context."""
    probe.require_causal_lm(trained)
    model = trained.model
    length = model.config.context_length // (MOST_EXAMPLES + 1)
    test, most = trained.test, trained.size(*PASSAGES)
    return few_shot_losses(model, test, length=length, passages=most, most_examples=MOST_EXAMPLES)


def view(result: StudyResult, arms: Arms) -> View:
    """The change of the loss by each number of examples, of the passage itself and of its shuffled tokens."""
    how = _(
        "{n} test passages of {length} tokens, each at the end of a window that holds {most} passages before it. "
        "Examples are the same passage; the controls are the same passage with its tokens in random order, and other "
        "passages of the text. All windows are equally long.",
        n=arms[0].first["passages"],
        length=arms[0].first["length"],
        most=MOST_EXAMPLES,
    )
    axis = Axis(_("examples in the prompt"), ticks=list(COUNTS))
    title, means = _("Change of the loss by examples of the passage"), _("Means over seeds.")
    sections = (
        Heading(_("Examples in a prompt")),
        how,
        *probe.mean_lines("few-shot", title, arms, dict(zip(COUNTS, CHANGES["same"], strict=True)), axis, means),
        probe.mean_table(means, arms, *SAME),
        probe.mean_table(means, arms, *SHUFFLED[1:]),
    )
    zero = [
        to_fixed(arm.title, 0.0, _("other passages"), change, arm.values(change), arm.name)
        for arm in arms
        for change in (CHANGES["same"][1], CHANGES["same"][-1])
        if arm.values(change)
    ]
    return View(sections, (*zero, *probe.within(arms, CHANGES["same"][-1], CHANGES["shuffled"][-1])))
