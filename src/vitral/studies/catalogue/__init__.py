"""The named studies: one TOML file each, in the format of `vitral.studies.study_file`."""

from functools import cache
from importlib.resources import files

from vitral.core.checked import checked
from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.studies.design import Study
from vitral.studies.study_file import parse_study

FIRST = (
    "no-attention",
    "scale",
    "mask",
    "norm",
    "positions",
    "heads",
    "tokens",
    "parts",
    "data",
    "scaling",
    "decoding",
    "meaning",
)
"""The order of lists; further files of this folder follow by name."""


@checked(first=True)
def study_names() -> dict[str, str]:
    """Every named study with its question."""
    return {name: study_named(name).question for name in _names()}


@checked(first=True)
@cache
def study_named(name: str) -> Study:
    """The study of that name.

    Raises:
        UsageError: there is none; the nearest name is offered.
    """
    if name not in _names():
        raise UsageError(
            "no study is called {name!r}; {name2} (all studies: vitral study list)",
            name=name,
            name2=nearest(name, _names()),
        )
    file = f"{name}.toml"
    return parse_study(files(__name__).joinpath(file).read_text(encoding="utf-8"), file)


@cache
def _names() -> tuple[str, ...]:
    found = {file.name.removesuffix(".toml") for file in files(__name__).iterdir() if file.name.endswith(".toml")}
    return tuple(sorted(found, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)))
