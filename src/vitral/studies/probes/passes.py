"""The probe `passes`: test loss over the passes over a text, and the lowest on the way."""

from statistics import fmean

from vitral.core.language import N_, _
from vitral.figures.lines import MOST_LINES, Axis, Line, left_out
from vitral.figures.sections import Heading
from vitral.studies import probe
from vitral.studies.losses import baseline_arm
from vitral.studies.probe import ArmMeasures, Arms, Plain, Plot, Quantity, StudyResult, Trained, View

SEEN = Quantity(N_("passes"), "passes", digits=1)
TOKENS = Quantity(N_("training text"), "tokens", "tokens", digits=0)
LOWEST = Quantity(N_("lowest test loss"), "lowest", "nats per token", better="lower")
AFTER = Quantity(N_("passes at the lowest"), "after", digits=1)
LAST = Quantity(N_("last test loss"), "last", "nats per token", better="lower")


def measure(trained: Trained) -> Plain:
    """Size of the training text, passes over it, and the losses on the way, from the run's own evaluations.

    Returns:
        "tokens", "passes"; "curve", (passes, test loss) of each evaluation; "lowest", the test loss where the
        validation loss is lowest, so that the test part chooses nothing; "after", the passes there; "last", the last
        test loss.
    """
    tokens = len(trained.dataset.splits["train"].tokens)
    steps = trained.run.config["training"]["steps"]
    events = trained.run.folder.metrics("evaluation")
    per_step = trained.num_tokens / steps / tokens
    found = [(one["step"] * per_step, one["validation_loss"], one["test_loss"]) for one in events]
    best = min(found, key=lambda one: one[1])
    return {
        "tokens": tokens,
        "passes": trained.num_tokens / tokens,
        "curve": [[passes, test] for passes, _, test in found],
        "lowest": best[2],
        "after": best[0],
        "last": found[-1][2],
    }


def view(result: StudyResult, arms: Arms) -> View:
    """Passes and losses by arm, a line for each arm, and every arm against its baseline in the lowest loss."""
    how = _(
        "All arms read equally many tokens, so a smaller text is read more often. The lowest loss is the test loss at "
        "the evaluation with the lowest validation loss, which one would keep. Losses are of the part of the test text "
        "that is measured while training."
    )
    by_name = {arm.name: arm for arm in arms}
    pairs = [(by_name.get(baseline_arm(result, result.arm(arm.name)).arm.name, arm), arm) for arm in arms]
    table = probe.mean_table(_("Means over seeds."), arms, TOKENS, SEEN, LOWEST, AFTER, LAST)
    compared = [one for other, arm in pairs if other is not arm for one in probe.against_base((other, arm), LOWEST)]
    return View((Heading(_("How often a text is read")), how, table, _plot(arms)), compared)


def _plot(arms: Arms) -> Plot:
    lines = [_line(arm) for arm in arms]
    axes = Axis(_("passes over the training text"), log=True), Axis(_("test loss (nats per token)"))
    caption = _("Test loss at each evaluation, mean over seeds; band: range over seeds.")
    caption += left_out([line.label for line in lines])
    alt = _(
        "Lowest test loss: {losses}.", losses="; ".join(f"{arm.title} {LOWEST.show(arm.mean(LOWEST))}" for arm in arms)
    )
    return probe.lined("passes", _("Test loss over passes"), lines[:MOST_LINES], axes, caption, alt)


def _line(arm: ArmMeasures) -> Line:
    points = list(zip(*(run["curve"] for run in arm.runs.values()), strict=False))
    places = [fmean(passes for passes, _loss in point) for point in points]
    return probe.mean_line(arm.title, places, [[loss for _passes, loss in point] for point in points])
