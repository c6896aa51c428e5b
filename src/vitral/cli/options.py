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


class Plan(enum.StrEnum):
    """How a training step is computed."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    compiled_float32 = "compiled-float32"
    compiled_bfloat16 = "compiled-bfloat16"


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


def planned(plan: Plan | None) -> dict[str, Any]:
    """The execution plan as a layer of configuration; what was not given stays as it is."""
    training: dict[str, Any] = {}
    if plan is Plan.auto:
        training["plan"] = "auto"
    elif plan is not None:
        precise = plan.value.removeprefix("compiled-")
        training |= {"plan": "as-written", "dtype": precise, "compile": plan.value != precise}
    return {"training": training}


def runtime(device: Device | None, dtype: Dtype | None) -> dict[str, Any]:
    """Device and precision as a layer of configuration; what was not given stays as it is."""
    given = {"device": device, "dtype": dtype}
    return {"training": {name: value.value for name, value in given.items() if value is not None}}
