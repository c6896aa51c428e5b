"""The probe `attention-sinks`: weight on the first position by layer and head, and the loss without it."""

from vitral.core.language import N_, _
from vitral.figures.grid import MOST_COLUMNS, MOST_ROWS, value_grid
from vitral.figures.sections import Details, Heading
from vitral.inspection import attention_sinks, window_targets
from vitral.studies import probe
from vitral.studies.claims import every, to_fixed
from vitral.studies.probe import Arms, Plain, Plot, Quantity, StudyResult, Trained, View

WINDOWS = (32, 64, 256)
"""Test windows, the same for every arm and seed."""
HEADS = "layers/*/heads/*"
WEIGHT = Quantity(N_("weight on the first position"), f"{HEADS}/weight")
MOST = Quantity(N_("largest weight of a head"), lambda run: max(every(run, f"{HEADS}/weight"), default=None))
UNIFORM = Quantity(N_("uniform attention"), "uniform")
ONE = Quantity(N_("loss increase if hidden from one head"), f"{HEADS}/without/increase", "nats per token")
LAYER = Quantity(N_("if hidden from one layer"), "layers/*/without/increase", "nats per token")
ALL = Quantity(N_("loss increase if the first position is hidden from all heads"), "without/increase", "nats per token")


def measure(trained: Trained) -> Plain:
    """Weight on the first position of every head, and the loss increase when it may not be attended to."""
    probe.require_causal_lm(trained)
    model = trained.model
    return attention_sinks(model, window_targets(model, trained.test, trained.size(*WINDOWS)))


def view(result: StudyResult, arms: Arms) -> View:
    """Weight and loss by arm and by layer, a map of the heads of the first arm, and every arm against the base."""
    arms = [arm for arm in arms if arm.values(WEIGHT)]
    if not arms:
        return View()
    how = _(
        "Mean weight of a head on the first position of its window, over queries that see several keys. The loss "
        "increase is that of the trained model when the first position is hidden from a head, from a layer or from all "
        "heads, wherever a query sees another key."
    )
    caption, title = _("Means over heads and seeds."), _("Weight on the first position")
    layers = probe.mean_table(caption, probe.by_layer(arms), WEIGHT, MOST, ONE, LAYER)
    sections = (
        Heading(_("Attention sinks")),
        how,
        *_map(arms),
        probe.mean_table(caption, arms, WEIGHT, MOST, UNIFORM, ONE, LAYER, ALL),
        *probe.interval_plot("sink-weights", title, arms, WEIGHT, _("Mean over heads.")),
        Details(_("Layer by layer"), (layers,)),
    )
    zero = [to_fixed(arm.title, 0.0, _("zero"), ALL, found) for arm in arms if (found := arm.values(ALL))]
    return View(sections, (*probe.within(arms, WEIGHT, UNIFORM), *zero, *probe.against_base(arms, WEIGHT)))


def _map(arms: Arms) -> tuple[Plot, ...]:
    """Every head of the first arm's first seed, unless there are too many to read."""
    weights = [every(layer, "heads/*/weight") for layer in arms[0].first["layers"]]
    if len(weights) > MOST_ROWS or len(weights[0]) > MOST_COLUMNS:
        return ()
    rows = [_("block {n}", n=index) for index in range(len(weights))]
    columns = [_("head {n}", n=index) for index in range(len(weights[0]))]
    title = _("{arm}, seed {seed}", arm=arms[0].title, seed=next(iter(arms[0].runs)))
    figure = value_grid(weights, rows, columns, _("weight"), title=title)
    caption = _(
        "Weight on the first position by block and head; uniform attention: {weight}.",
        weight=UNIFORM.show(arms[0].mean(UNIFORM)),
    )
    alt = _("{title}: largest weight {weight:.2f}.", title=title, weight=max(map(max, weights)))
    return (Plot(figure, "sink-map", caption, alt),)
