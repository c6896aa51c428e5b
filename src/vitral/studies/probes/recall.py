"""The probe `recall`: right values on new sequences of a recall task, over all and by distance."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from vitral.core.language import N_, _
from vitral.data.tasks import KeyValueRecall
from vitral.figures.lines import Axis
from vitral.figures.sections import Heading
from vitral.inspection import recall_by_distance
from vitral.studies import probe
from vitral.studies.claims import to_fixed
from vitral.studies.probe import ArmMeasures, Arms, Plain, Quantity, StudyResult, Trained, View
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
    return recall_by_distance(trained.model, task, rows)


def view(result: StudyResult, arms: Arms) -> View:
    """Accuracy over all and by distance; every arm against the first of the same task, and against chance."""
    how = _(
        "The share of values that the model puts first among all tokens, on test sequences. The distance is the number "
        "of tokens from the value in its pair to the place of the answer; all distances are read by the same model."
    )
    near, far = (_part(last) for last in (False, True))
    x, tasks, plots, comparisons = Axis(_("distance to the value (tokens)")), _by_task(arms), [], []
    for index, alike in enumerate(tasks):
        groups = alike[0].first["distances"]
        places = {(group["from"] + group["to"]) / 2: _group(place) for place, group in enumerate(groups)}
        title = _("Recall by distance: {arm}", arm=alike[0].title) if len(tasks) > 1 else _("Recall by distance")
        plots += probe.mean_lines(f"recall-{index + 1}", title, alike, places, x, _("Means over seeds."))
        comparisons += probe.against_base(alike, ACCURACY, far)
    comparisons += probe.within(arms, far, near)
    comparisons += [
        to_fixed(arm.title, arm.first["chance"], _("chance"), ACCURACY, arm.values(ACCURACY)) for arm in arms
    ]
    table = probe.mean_table(_("Means over seeds."), arms, ACCURACY, NATS, CHANCE, near, far)
    return View((Heading(_("Recall by distance")), how, table, *plots), comparisons)


def _by_task(arms: Arms) -> list[list[ArmMeasures]]:
    """The arms of each task together, in order."""
    tasks: dict[str, list[ArmMeasures]] = {}
    for arm in arms:
        tasks.setdefault(str(arm.config["corpus"]["task"]), []).append(arm)
    return [*tasks.values()]


def _read(run: Mapping[str, Any], group: int) -> float | None:
    groups = run["distances"]
    return groups[group]["accuracy"] if -len(groups) <= group < len(groups) else None


def _group(group: int) -> Quantity:
    return Quantity(_("share of right values"), partial(_read, group=group), better="higher")


def _part(last: bool) -> Quantity:
    name = N_("right at the largest distances") if last else N_("right at the smallest distances")
    return Quantity(name, partial(_read, group=-1 if last else 0), better="higher")
