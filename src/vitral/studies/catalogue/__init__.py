"""The named studies, each a piece of data in a module of its own."""

from pathlib import Path

from vitral.core.config import nearest, read_toml
from vitral.core.errors import UsageError
from vitral.studies.catalogue.data import DATA
from vitral.studies.catalogue.decoding import DECODING
from vitral.studies.catalogue.heads import HEADS
from vitral.studies.catalogue.mask import MASK
from vitral.studies.catalogue.meaning import MEANING
from vitral.studies.catalogue.no_attention import NO_ATTENTION
from vitral.studies.catalogue.norm import NORM
from vitral.studies.catalogue.parts import PARTS
from vitral.studies.catalogue.positions import POSITIONS
from vitral.studies.catalogue.scale import SCALE
from vitral.studies.catalogue.scaling import SCALING
from vitral.studies.catalogue.tokens import TOKENS
from vitral.studies.design import Study

STUDIES = {
    study.name: study
    for study in (
        NO_ATTENTION,
        SCALE,
        MASK,
        NORM,
        POSITIONS,
        HEADS,
        TOKENS,
        PARTS,
        DATA,
        SCALING,
        DECODING,
        MEANING,
    )
}


def study_names() -> dict[str, str]:
    """Every named study with its question."""
    return {name: study.question for name, study in STUDIES.items()}


def study_named(name: str) -> Study:
    """The study of that name.

    Raises:
        UsageError: there is none; the nearest name is offered.
    """
    if name not in STUDIES:
        raise UsageError(f"no study is called {name!r}, {nearest(name, STUDIES)}; vitral study list shows them all")
    return STUDIES[name]


def read_study(path: Path) -> Study:
    """A study of one's own, from a TOML file with the fields of `Study` (each arm a table of `[[arms]]`).

    Raises:
        UsageError: it cannot be read, or is not a study; one line says where.
    """
    return Study.parse(read_toml(path), str(path))
