"""The probe `recall`: right values on new sequences of a recall task, over all and by distance."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from vitral.core.language import N_, _
from vitral.data.tasks import KeyValueRecall
from vitral.figures.lines import Axis
from vitral.figures.sections import Heading, Paragraph
from vitral.inspection import recall_by_distance
from vitral.studies import probe
from vitral.studies.claims import Comparison, Plain, Quantity, to_fixed
from vitral.studies.probe import Arms, Trained, View
from vitral.studies.results import StudyResult
from vitral.studies.trajectories import task_rows

ROWS = (1000, 2000, 4000)
"""Test sequences."""
ACCURACY = Quantity(N_("share of right values"), "accuracy", better="higher")
NATS = Quantity(N_("loss of the values"), "nats", "nats", "lower")
CHANCE = Quantity(N_("chance"), "chance")


def measure(trained: Trained) -> Plain:
    """Right values and their loss by distance."""
    probe.require_causal_lm(trained)
    task, rows = task_rows(trained, KeyValueRecall, trained.size(*ROWS))
    return recall_by_distance(trained.run.model, task, rows)


def view(result: StudyResult, arms: Arms) -> View:
    """Accuracy over all and by distance; every arm against the first of the same task, and against chance."""
    how = _(
        "The share of values that the model puts first among all tokens, on test sequences. The distance is the number "
        "of tokens from the value in its pair to the place of the answer; all distances are read by the same model."
    )
    near, far = (_part(last) for last in (False, True))
    x = Axis(_("distance to the value (tokens)"))
    seen = {arm.name: arm.first["distances"] for arm in arms}
    sections = [Heading(_("Recall by distance")), Paragraph(how)]
    sections.append(probe.mean_table(_("Means over seeds."), arms, ACCURACY, NATS, CHANCE, near, far))
    plots = []
    for index, alike in enumerate(_by_task(arms)):
        places = {(group["from"] + group["to"]) / 2: _group(place) for place, group in enumerate(seen[alike[0].name])}
        title = (
            _("Recall by distance: {arm}", arm=alike[0].title) if len(_by_task(arms)) > 1 else _("Recall by distance")
        )
        plots += probe.mean_lines(f"recall-{index + 1}", title, alike, places, x, _("Means over seeds."))
    comparisons: list[Comparison] = []
    for alike in _by_task(arms):
        comparisons += probe.against_base(alike, ACCURACY, far) if len(alike) > 1 else ()
    comparisons += probe.within(arms, far, near)
    comparisons += [
        to_fixed(arm.title, arm.first["chance"], _("chance"), ACCURACY, arm.values(ACCURACY)) for arm in arms
    ]
    return View((*sections, *plots), tuple(comparisons))


def _by_task(arms: Arms) -> list[Arms]:
    """The arms of each task together, in order."""
    tasks = []
    for arm in arms:
        if arm.config["corpus"]["task"] not in tasks:
            tasks.append(arm.config["corpus"]["task"])
    return [[arm for arm in arms if arm.config["corpus"]["task"] == task] for task in tasks]


def _read(run: Mapping[str, Any], group: int) -> float | None:
    groups = run["distances"]
    return groups[group]["accuracy"] if -len(groups) <= group < len(groups) else None


def _group(group: int) -> Quantity:
    return Quantity(_("share of right values"), partial(_read, group=group), better="higher")


def _part(last: bool) -> Quantity:
    name = N_("right at the largest distances") if last else N_("right at the smallest distances")
    return Quantity(name, partial(_read, group=-1 if last else 0), better="higher")
