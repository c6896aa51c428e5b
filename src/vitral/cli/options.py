"""Options that several commands share, declared once."""

import enum
from pathlib import Path
from typing import Annotated, Any

import typer


class Format(enum.StrEnum):
    """How something is printed."""

    text = "text"
    json = "json"


class Device(enum.StrEnum):
    """Where a model runs."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class Dtype(enum.StrEnum):
    """In which precision a model runs."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float64 = "float64"


class Which(enum.StrEnum):
    """Which checkpoint of a run."""

    best = "best"
    last = "last"


FormatOption = Annotated[Format, typer.Option("--format", help="Print for people, or JSON for programs.")]
DeviceOption = Annotated[Device, typer.Option(help="Where the model runs.")]
DtypeOption = Annotated[Dtype, typer.Option(help="In which precision the model runs.")]
WhichOption = Annotated[Which, typer.Option("--checkpoint", help="The best on validation, or the last.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one value, as in model.d_model=64; repeatable."),
]
OutOption = Annotated[Path | None, typer.Option(help="The folder to make; a free one under runs/ if left out.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]


def runtime(device: Device | None, dtype: Dtype | None) -> dict[str, Any]:
    """Device and precision as a layer of configuration; what was not given stays as it is."""
    given = {"device": device, "dtype": dtype}
    return {"training": {name: value.value for name, value in given.items() if value is not None}}
