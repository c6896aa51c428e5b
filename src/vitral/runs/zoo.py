"""The zoo: small trained runs that come with Vitral. `zoo:NAME` is one of them wherever a run is expected.

zoo/NAME.toml      a sentence about the run, and its recipe: a configuration
zoo/NAME/          the run, with its weights in float16 and without its optimizer
zoo/numbers.json   what `make zoo` measured of these weights

They belong to the installation: nothing is written into them.
"""

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError

PREFIX = "zoo:"
FOLDER = Path(__file__).resolve().parents[1] / "zoo"


def zoo_names() -> list[str]:
    """The names of its runs."""
    return sorted(recipe.stem for recipe in FOLDER.glob("*.toml"))


def located(run: str | Path) -> Path:
    """The folder of a run: for `zoo:NAME` that of the zoo, otherwise the path itself.

    Raises:
        UsageError: the zoo has no run of that name.
    """
    name_or_path = str(run)
    if not name_or_path.startswith(PREFIX):
        return Path(run)
    name = name_or_path.removeprefix(PREFIX)
    if name not in (known := zoo_names()):
        from vitral.core.config import nearest  # pydantic, which no other line here needs

        hint = nearest(name, known)
        raise UsageError("{run}: the zoo has no such run; {hint}", run=name_or_path, hint=hint)
    return FOLDER / name


def zoo_name(folder: Path) -> str | None:
    """`zoo:NAME` for the folder of a run of the zoo; None for any other."""
    return f"{PREFIX}{folder.name}" if folder.resolve().parent == FOLDER else None


def refuse_changes(run: str | Path) -> None:
    """Refuse a run of the zoo where the run itself would be changed.

    Raises:
        UsageError: it is one.
    """
    if zoo_name(located(run)):
        raise UsageError(
            "{run}: a run of the zoo is finished and never changes; vitral train TEXT --init-from {run} starts a new "
            "run with its weights",
            run=run,
        )


@cache
def recipe(name: str) -> dict[str, Any]:
    """A run's recipe: `description`, one English sentence; `run`, its configuration; `opens`, where its page opens."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))


@cache
def numbers() -> dict[str, dict[str, Any]]:
    """By name, what `make zoo` measured of each run."""
    return json.loads((FOLDER / "numbers.json").read_text("utf-8"))
