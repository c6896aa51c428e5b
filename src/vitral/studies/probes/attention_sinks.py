"""The probe `attention-sinks`: weight on the first position, and the loss without it."""

from vitral.core.language import N_
from vitral.inspection import attention_sinks, window_targets
from vitral.studies.claims import every
from vitral.studies.probe import Against, Dots, Fixed, Plain, Probe, Quantity, Trained, Within, require_causal_lm

WINDOWS = (32, 64, 256)
"""Test windows, the same for every arm and seed."""
HEADS, NATS = "layers/*/heads/*", "nats per token"
WEIGHT = Quantity(N_("weight on the first position"), f"{HEADS}/weight")
MOST = Quantity(N_("largest weight of a head"), lambda run: max(every(run, f"{HEADS}/weight"), default=None))
UNIFORM = Quantity(N_("uniform attention"), "uniform")
ONE = Quantity(N_("loss increase if hidden from one head"), f"{HEADS}/without/increase", NATS)
LAYER = Quantity(N_("if hidden from one layer"), "layers/*/without/increase", NATS)
ALL = Quantity(N_("loss increase if the first position is hidden from all heads"), "without/increase", NATS)


def measure(trained: Trained) -> Plain:
    """Weight on the first position of every head, and the loss increase when it may not be attended to."""
    require_causal_lm(trained)
    return attention_sinks(trained.model, window_targets(trained.model, trained.test, trained.size(*WINDOWS)))


PROBE = Probe(
    "attention-sinks",
    N_("Attention sinks"),
    measure,
    about=N_(
        "Mean weight of a head on the first position of its window, over queries that see several keys. The loss "
        "increase is that of the trained model when the first position is hidden from a head, from a layer or from all "
        "heads, wherever a query sees another key."
    ),
    tables=[(WEIGHT, MOST, UNIFORM, ONE, LAYER, ALL)],
    contrasts=(Within(WEIGHT, UNIFORM), Fixed([ALL], 0.0, N_("zero")), Against([WEIGHT])),
    figure=Dots(N_("Weight on the first position"), WEIGHT),
    seconds=(2, 5, 20),
)
