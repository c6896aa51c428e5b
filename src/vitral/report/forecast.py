"""The text and the page of a forecast."""

from vitral.core.language import N_, _, number
from vitral.forecast.forecasting import Forecast, Range
from vitral.report.html import page
from vitral.report.model import size_of
from vitral.report.notebook import page_of, text_of
from vitral.report.plain import plain_text
from vitral.report.sections import Listing, Section, Table
from vitral.report.tables import Column, DataTable

COLUMNS = (
    Column("quantity", N_("quantity"), _, is_prose=True),
    Column("unit", N_("unit"), _, is_prose=True),
    Column("low", N_("least"), lambda value: number(value, ".4g")),
    Column("high", N_("most"), lambda value: number(value, ".4g")),
)


def forecast_title(forecast: Forecast) -> str:
    """The heading."""
    return _(
        "Forecast for {name}: {parameters:,} parameters on {ranks} × {accelerator}",
        **{**vars(forecast), "accelerator": forecast.accelerator.name},
    )


def forecast_rows(forecast: Forecast) -> list[tuple[str, str, str]]:
    """The forecast as (quantity, value, how it is counted)."""
    there = _("of {there}: it fits") if forecast.fits else _("of {there}: it does not fit")
    per_step = _("on all together; a step of {tokens:,} tokens", tokens=forecast.tokens_per_step)
    passes = _("forward, backward and the optimizer's step")
    return [
        (_("memory of one"), size_of(forecast.memory), there.format(there=size_of(int(forecast.accelerator.memory)))),
        (_("operations per token"), f"{number(forecast.flops_per_token, '.3g')} FLOPs", passes),
        (_("tokens per second"), _range(forecast.tokens_per_second, ",.0f"), per_step),
        (_("hours"), _range(forecast.hours, ".3g"), _("for {tokens:,} tokens", tokens=forecast.tokens)),
    ]


def forecast_table(forecast: Forecast) -> DataTable:
    """The quantities, in a form to be written."""
    return DataTable(forecast_title(forecast), COLUMNS, forecast.records())


def _sections(forecast: Forecast) -> list[Section]:
    columns = ("", "", _("how counted"))
    return [Table(_("Forecast"), columns, tuple(forecast_rows(forecast)), prose=(1, 2)), Listing(forecast.notes)]


def _range(found: Range | None, spec: str) -> str:
    return "?" if found is None else _("{low} to {high}", low=number(found[0], spec), high=number(found[1], spec))


@text_of.register
def _forecast_text(forecast: Forecast) -> str:
    return plain_text(forecast_title(forecast), _sections(forecast))


@page_of.register
def _forecast_page(forecast: Forecast) -> str:
    return page(forecast_title(forecast), _sections(forecast))
