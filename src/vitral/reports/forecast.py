"""A training's needs before a machine is rented: memory, speed, hours, price, network and checkpoints."""

from dataclasses import asdict, dataclass
from typing import Any

from vitral.core.checked import checked
from vitral.core.language import N_, _, number
from vitral.core.tables import Tabular
from vitral.figures.html import page
from vitral.figures.notebook import Shown, page_of
from vitral.figures.plain import plain_text
from vitral.figures.sections import Listing, Section, Table
from vitral.figures.tables import Column, DataTable
from vitral.reports.model import size_of

Range = tuple[float, float]
"""The least and the most."""
WIDE = 1024
"""Columns of a matrix below which published shares of the peak say nothing."""
STORAGE = 1e9
"""Bytes a second at which each machine is taken to write a checkpoint."""


@dataclass(frozen=True)
class Accelerator:
    """A kind of accelerator.

    Attributes:
        kind: its short name.
        name: its name.
        flops: bfloat16 operations a second with dense matrices.
        memory: bytes.
        link: bytes a second to another in the same machine, one way.
        network: bytes a second to another machine, one way.
        per_node: accelerators in one machine.
        utilisation: least and most share of `flops` that published trainings reach on this kind; None: none is known.
    """

    kind: str
    name: str
    flops: float
    memory: float
    link: float
    network: float
    per_node: int
    utilisation: Range | None = None


@dataclass(frozen=True)
class PredictedLoss:
    """The test loss of one run by a law fitted to the runs of a study, in nats per character.

    Attributes:
        law: its formula.
        loss: the fitted one.
        low: the end of its 95 % interval, which has the fit's uncertainty and the scatter of one run.
        high: the other end.
    """

    law: str
    loss: float
    low: float
    high: float


@dataclass(frozen=True)
class LossForecast:
    """What a finished scaling study says of the loss of a training.

    Attributes:
        study: its folder.
        size: parameters in the blocks, N.
        amount: tokens trained on, D.
        sizes: the least and the largest N of the study's runs.
        amounts: their least and largest D.
        laws: the loss by each law of N and D.
    """

    study: str
    size: float
    amount: float
    sizes: Range
    amounts: Range
    laws: tuple[PredictedLoss, ...]

    @property
    def is_within(self) -> bool:
        """Whether N and D are between those of the study's runs."""
        return all(low <= one <= high for one, (low, high) in ((self.size, self.sizes), (self.amount, self.amounts)))


@checked(first=True)
@dataclass(frozen=True, repr=False)
class Forecast(Shown, Tabular):
    """What a training needs on machines that are not here. A range is (low, high), or None where the speed is unknown.

    Attributes:
        name: of the preset or configuration.
        vocab_size: tokens in the vocabulary.
        parameters: of the model.
        ranks: accelerators.
        accelerator: their kind.
        tokens: that the whole training reads.
        tokens_per_step: of one step on all accelerators.
        flops_per_token: operations of a training step, divided by its tokens.
        tokens_per_second: on all accelerators together, a range.
        hours: of the whole training, a range.
        price: of the whole training, a range, in the unit of the price given; None without one.
        memory: bytes of one accelerator at the peak of a step, by kind, `Total` among them.
        network_bytes: that each accelerator sends in a step.
        network_seconds: that these take where nothing else hides them.
        step_seconds: of one step, a range.
        checkpoint_bytes: weights and the optimizer's averages.
        checkpoint_seconds: to write them, a gigabyte a second from each machine.
        notes: what the numbers rest on, one sentence each.
        loss: what a scaling study says of the test loss; None without one.
    """

    name: str
    vocab_size: int
    parameters: int
    ranks: int
    accelerator: Accelerator
    tokens: int
    tokens_per_step: int
    flops_per_token: float
    tokens_per_second: Range | None
    hours: Range | None
    price: Range | None
    memory: dict[str, int]
    network_bytes: float
    network_seconds: float
    step_seconds: Range | None
    checkpoint_bytes: int
    checkpoint_seconds: float
    notes: tuple[str, ...] = ()
    loss: LossForecast | None = None

    @property
    def fits(self) -> bool:
        """Whether a step fits into the memory of one accelerator."""
        return self.memory["Total"] <= self.accelerator.memory

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        loss = self.loss and {**asdict(self.loss), "is_within": self.loss.is_within}
        return {**asdict(self), "fits": self.fits, "notes": list(self.notes), "loss": loss}

    def __str__(self) -> str:
        """The forecast as the command prints it."""
        return plain_text(self.title, forecast_sections(self))

    @property
    def title(self) -> str:
        """The heading."""
        return _(
            "Forecast for {name}: {parameters:,} parameters on {ranks} × {accelerator}",
            name=self.name,
            parameters=self.parameters,
            ranks=self.ranks,
            accelerator=self.accelerator.name,
        )

    def table(self) -> DataTable:
        """The quantities, in a form to be written."""
        columns = (
            Column("quantity", N_("quantity"), _, is_prose=True),
            Column("unit", N_("unit"), _, is_prose=True),
            Column("low", N_("least"), lambda value: number(value, ".4g")),
            Column("high", N_("most"), lambda value: number(value, ".4g")),
        )
        return DataTable(self.title, columns, self.records())

    def records(self) -> list[dict[str, Any]]:
        """One row for each quantity: its least and its most."""
        once = {
            (N_("memory of one"), N_("bytes")): self.memory["Total"],
            (N_("operations per token"), N_("FLOPs")): self.flops_per_token,
            (N_("network"), N_("bytes per step")): self.network_bytes,
            (N_("a checkpoint"), N_("bytes")): self.checkpoint_bytes,
        }
        ranges = {
            (N_("tokens per second"), N_("tokens/s")): self.tokens_per_second,
            (N_("training"), N_("hours")): self.hours,
            (N_("price"), N_("as given")): self.price,
        }
        both = {key: (value, value) for key, value in once.items()}
        both |= {key: found for key, found in ranges.items() if found is not None}
        for one in () if self.loss is None else self.loss.laws:
            both |= {(N_("test loss by {law}").format(law=one.law), N_("nats per character")): (one.low, one.high)}
        keys = ("quantity", "unit", "low", "high")
        return [dict(zip(keys, (*names, *values), strict=True)) for names, values in both.items()]


@page_of.register
def _forecast_page(forecast: Forecast) -> str:
    return page(forecast.title, forecast_sections(forecast))


def forecast_rows(forecast: Forecast) -> list[tuple[str, str, str]]:
    """The forecast as (quantity, value, how it is counted)."""
    there = _("of {there}: it fits") if forecast.fits else _("of {there}: it does not fit")
    rows = [
        (
            _("memory of one"),
            size_of(forecast.memory["Total"]),
            there.format(there=size_of(int(forecast.accelerator.memory))),
        ),
        (
            _("operations per token"),
            f"{number(forecast.flops_per_token, '.3g')} FLOPs",
            _("forward, backward and the optimizer's step"),
        ),
        (
            _("tokens per second"),
            _range(forecast.tokens_per_second, ",.0f"),
            _("on all together; a step of {tokens:,} tokens", tokens=forecast.tokens_per_step),
        ),
        (
            _("hours"),
            _range(forecast.hours, ".3g"),
            _("for {tokens:,} tokens", tokens=forecast.tokens),
        ),
        (
            _("network"),
            _("{bytes} per step", bytes=size_of(int(forecast.network_bytes))),
            _sent(forecast),
        ),
        (
            _("a checkpoint"),
            size_of(forecast.checkpoint_bytes),
            _("{seconds} s at 1 GB/s from each machine", seconds=number(forecast.checkpoint_seconds, ".2g")),
        ),
    ]
    if forecast.price is not None:
        rows.insert(
            4, (_("price"), _range(forecast.price, ",.0f"), _("hours times accelerators times the price given"))
        )
    for one in () if forecast.loss is None else forecast.loss.laws:
        how = _("nats per character, 95% interval of one run about {loss}", loss=number(one.loss, ".3f"))
        rows.append((_("test loss by {law}", law=one.law), _range((one.low, one.high), ".3f"), how))
    return rows


def _sent(forecast: Forecast) -> str:
    seconds = number(forecast.network_seconds, ".2g")
    if forecast.step_seconds is None:
        return _("sent by each; {seconds} s where nothing hides it", seconds=seconds)
    low, high = (number(each, ".2g") for each in forecast.step_seconds)
    return _(
        "sent by each; {seconds} s where nothing hides it, beside {low} to {high} s of a step",
        seconds=seconds,
        low=low,
        high=high,
    )


def _range(found: Range | None, spec: str) -> str:
    return "?" if found is None else _("{low} to {high}", low=number(found[0], spec), high=number(found[1], spec))


def forecast_sections(forecast: Forecast) -> list[Section]:
    """The whole forecast as sections of a page."""
    rows = Table(_("Forecast"), ("", "", _("how counted")), tuple(forecast_rows(forecast)), prose=(1, 2))
    return [rows, Listing(tuple(map(_, forecast.notes)))]
