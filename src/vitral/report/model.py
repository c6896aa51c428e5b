"""What a model costs before it is trained: its parameters, operations and bytes; and what a training will cost."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from vitral.core.language import N_, _, number
from vitral.core.shown import Shown, Tabular
from vitral.model import Cost, ModelConfig, ParameterRow, cost, parameter_table
from vitral.model.counts import BYTES_FLOAT32
from vitral.report.html import page
from vitral.report.markdown import plain_text
from vitral.report.sections import Listing, Section
from vitral.report.tables import Column, Table, whole
from vitral.runs import RunConfig
from vitral.runs.optimizers import OPTIMIZERS, OwnOptimizer
from vitral.training.forecast import Forecast, Range


@dataclass(frozen=True, repr=False)
class ModelCount(Shown, Tabular):
    """A model's size and costs.

    Attributes:
        name: of the preset or configuration.
        vocab_size: tokens in the vocabulary.
        config: the model's configuration.
        batch_size: windows in a batch, for the activations.
        rows: every learned tensor.
        cost: totals.
        optimizer: "adamw", "muon", "sgd" or the name of an own one, which is taken to have the averages of AdamW.
        advice: how its text is trained on, one line for each choice.
        optimizer_flops: floating-point operations of one step of the optimizer.
    """

    name: str
    vocab_size: int
    config: ModelConfig
    batch_size: int
    rows: list[ParameterRow]
    cost: Cost
    optimizer: str = "adamw"
    advice: tuple[str, ...] = ()
    optimizer_flops: int = 0

    @staticmethod
    def of(name: str, config: RunConfig, vocab_size: int, advice: tuple[str, ...] = ()) -> "ModelCount":
        """The count of a configuration with this many tokens."""
        model, training = config.model, config.training
        rows, costs = parameter_table(model, vocab_size), cost(model, vocab_size, training.batch_size)
        costs = replace(costs, optimizer_bytes=BYTES_FLOAT32 * training.optimizer.kept_numbers(rows))
        optimizer = training.optimizer
        flops = optimizer.flops(rows, model, in_bfloat16=training.dtype == "bfloat16")
        return ModelCount(name, vocab_size, model, training.batch_size, rows, costs, optimizer.name, advice, flops)

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "name": self.name,
            "vocab_size": self.vocab_size,
            "batch_size": self.batch_size,
            "model": self.config.plain(),
            "rows": self.records(),
            "cost": asdict(self.cost),
            "optimizer": self.optimizer,
            "optimizer_flops": self.optimizer_flops,
            "advice": list(self.advice),
        }

    def __str__(self) -> str:
        """The parameters, operations and bytes as the command prints them."""
        return plain_text("", count_sections(self)).lstrip()

    @property
    def title(self) -> str:
        """The heading."""
        return _(
            "Parameters of {name} with {tokens} tokens: {parameters:,}",
            name=self.name,
            tokens=self.vocab_size,
            parameters=self.cost.parameters,
        )

    def table(self) -> Table:
        """Every learned tensor, in a form to be written."""
        return Table(self.title, PARAMETERS, self.records())

    def page(self) -> str:
        """The count as an HTML document."""
        return page(self.title, count_sections(self))

    def records(self) -> list[dict[str, Any]]:
        """One row for each learned tensor."""
        return [asdict(row) for row in self.rows]


CACHED, STATES = N_("keys and values of one full context"), N_("hidden and cell states of one sequence")
PARTS = (
    N_("embedding"),
    N_("positions"),
    N_("norm"),
    N_("attention"),
    N_("recurrence"),
    N_("scale"),
    N_("feed-forward"),
    N_("final norm"),
    N_("head"),
)
"""The parts of a parameter table, as `_` translates them."""


def count_sections(counted: ModelCount) -> list[Section]:
    """The whole count as sections of a page."""
    costs, tokens = counted.cost, counted.batch_size * counted.config.context_length
    optimizer = OPTIMIZERS.get(counted.optimizer, OwnOptimizer)
    step = (costs.forward_flops + costs.backward_flops) * tokens + counted.optimizer_flops
    passes, made = N_("{flops:,} FLOPs per token"), N_("{flops:,} FLOPs per step")
    matrix = _("2 per matrix entry, 4 · context · num_heads · d_head per attention layer")
    backward = _("estimate, for the backward pass of {tokens:,} tokens", tokens=tokens)
    each = _("4 bytes each")
    rows = (
        (_("forward"), _(passes, flops=costs.forward_flops), matrix),
        (_("backward"), _(passes, flops=costs.backward_flops), _("twice the forward pass")),
        (_("step of the optimizer"), _(made, flops=counted.optimizer_flops), _(optimizer.computes)),
        (_("one training step"), f"{number(step, '.3g')} FLOPs", _("{tokens:,} tokens", tokens=tokens)),
        (_("weights"), size_of(costs.weight_bytes), each),
        (_("gradients"), size_of(costs.gradient_bytes), each),
        (_("optimizer"), size_of(costs.optimizer_bytes), _(optimizer.keeps)),
        (_("activations"), size_of(costs.activation_bytes), backward),
        (_("cache"), size_of(costs.cache_bytes), _(CACHED if counted.config.recurrence is None else STATES)),
    )
    table = Table(_("Operations and bytes (float32)"), ("", "", _("how counted")), rows, prose=(1, 2))
    advice = [Listing(tuple(map(_, counted.advice)))] if counted.advice else []
    return [parameter_section(counted.rows, counted.title), table, *advice]


def size_of(count: int) -> str:
    """A number of bytes in its unit."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{number(count / size, '.2f')} {unit}"
    return f"{count} bytes"


PARAMETERS = (
    Column("name", N_("name")),
    Column("part", N_("part"), lambda part: _(part or ""), is_prose=True),
    Column("shape", N_("shape"), lambda shape: "×".join(map(str, shape or ())), is_prose=True),
    Column("formula", N_("formula"), lambda formula: formula or "", is_prose=True),
    Column("count", N_("parameters"), whole),
)


def parameter_section(rows: list[ParameterRow], caption: str = "") -> Table:
    """The parameter table with its total."""
    total = {"name": _("total"), "count": sum(row.count for row in rows)}
    return Table(caption or _("Every learned tensor"), PARAMETERS, [*map(asdict, rows), total])


FORECAST = (
    Column("quantity", N_("quantity"), _),
    Column("unit", N_("unit"), _, is_prose=True),
    Column("low", N_("least"), lambda value: number(value, ".4g")),
    Column("high", N_("most"), lambda value: number(value, ".4g")),
)


def table_of(forecast: Forecast) -> Table:
    """The quantities, in a form to be written."""
    values = {**vars(forecast), "accelerator": forecast.accelerator.name}
    title = _("Forecast for {name}: {parameters:,} parameters on {ranks} × {accelerator}", **values)
    return Table(title, FORECAST, forecast.records())


def forecast_sections(forecast: Forecast) -> list[Section]:
    """The quantities for people, with how each is counted, and notes."""
    there = _("of {there}: it fits") if forecast.fits else _("of {there}: it does not fit")
    per_step = _("on all together; a step of {tokens:,} tokens", tokens=forecast.tokens_per_step)
    passes = _("forward, backward and the optimizer's step")
    rows = (
        (_("memory of one"), size_of(forecast.memory), there.format(there=size_of(int(forecast.accelerator.memory)))),
        (_("operations per token"), f"{number(forecast.flops_per_token, '.3g')} FLOPs", passes),
        (_("tokens per second"), _range(forecast.tokens_per_second, ",.0f"), per_step),
        (_("hours"), _range(forecast.hours, ".3g"), _("for {tokens:,} tokens", tokens=forecast.tokens)),
    )
    columns = ("", "", _("how counted"))
    return [Table(table_of(forecast).caption, columns, rows, prose=(1, 2)), Listing(forecast.notes)]


def _range(ends: Range | None, spec: str) -> str:
    return "?" if ends is None else _("{low} to {high}", low=number(ends[0], spec), high=number(ends[1], spec))


def text_of(forecast: Forecast) -> str:
    """The quantities in aligned lines, and the notes."""
    return plain_text("", forecast_sections(forecast)).lstrip()


def page_of(forecast: Forecast) -> str:
    """The same as an HTML document."""
    return page(_("Forecast"), forecast_sections(forecast))
