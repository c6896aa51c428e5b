"""The named studies, each a piece of data in a module of its own."""

from pathlib import Path

from vitral.core.config import nearest, read_toml
from vitral.core.errors import UsageError
from vitral.studies.catalogue.no_attention import NO_ATTENTION
from vitral.studies.design import Study

STUDIES = {study.name: study for study in (NO_ATTENTION,)}


def study_names() -> dict[str, str]:
    """Every named study with its question."""
    return {name: study.question for name, study in STUDIES.items()}


def study_named(name: str) -> Study:
    """The study of that name.

    Raises:
        UsageError: there is none; the nearest name is offered.
    """
    if name not in STUDIES:
        raise UsageError(f"no study is called {name!r}, {nearest(name, STUDIES)}")
    return STUDIES[name]


def read_study(path: Path) -> Study:
    """A study of one's own, from a TOML file with the fields of `Study` (each arm a table of `[[arms]]`).

    Raises:
        UsageError: it cannot be read, or is not a study; one line says where.
    """
    return Study.parse(read_toml(path), str(path))
