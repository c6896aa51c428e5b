"""The probe `recall`: right values on new sequences of a recall task, over all and by distance."""

from collections.abc import Iterable

from vitral.core.language import N_
from vitral.data.tasks import KeyValueRecall
from vitral.inspection import recall_by_distance
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Course,
    Plain,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    Within,
    require_causal_lm,
)
from vitral.studies.trajectories import task_rows

ROWS = (1000, 2000, 4000)
"""Test sequences."""
ACCURACY = Quantity(N_("share of right values"), "accuracy", better="higher")
NATS = Quantity(N_("loss of the values"), "nats", "nats", "lower")
CHANCE = Quantity(N_("chance"), "chance")
NEAR = Quantity(N_("right at the smallest distances"), "distances/0/accuracy", better="higher")
FAR = Quantity(N_("right at the largest distances"), "distances/-1/accuracy", better="higher")


def measure(trained: Trained) -> Plain:
    """Right values and their loss by distance."""
    require_causal_lm(trained)
    task, rows = task_rows(trained, KeyValueRecall, trained.size(*ROWS))
    return recall_by_distance(trained.model, task, rows)


def first_of_its_task(result: StudyResult, arms: Arms) -> Iterable[tuple[ArmMeasures, ArmMeasures]]:
    """Every arm with the first one of the same task, task by task."""
    tasks: dict[str, list[ArmMeasures]] = {}
    for arm in arms:
        tasks.setdefault(str(arm.config["corpus"]["task"]), []).append(arm)
    return ((arm, alike[0]) for alike in tasks.values() for arm in alike[1:])


PROBE = Probe(
    "recall",
    N_("Recall by distance"),
    measure,
    about=N_(
        "The share of values that the model puts first among all tokens, on test sequences. The distance is the number "
        "of tokens from the value in its pair to the place of the answer; all distances are read by the same model."
    ),
    tables=[(ACCURACY, NATS, CHANCE, NEAR, FAR)],
    contrasts=[Against((ACCURACY, FAR), first_of_its_task), Within(FAR, NEAR), Within(ACCURACY, CHANCE)],
    figure=Course(
        N_("Recall by distance"),
        Axis(N_("distance to the value (tokens)")),
        Axis(N_("share of right values")),
        lambda run: [((one["from"] + one["to"]) / 2, one["accuracy"]) for one in run["distances"]],
    ),
    seconds=(1, 1, 3),
)
