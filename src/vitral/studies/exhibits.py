"""What the probes of a study have to show, their figures written and put among the sections."""

from pathlib import Path

from vitral.figures.sections import Heading, Listing, Section
from vitral.studies.figures import written
from vitral.studies.probes import Exhibit, Plot, probe_named
from vitral.studies.results import StudyResult


def exhibits(result: StudyResult) -> tuple[Exhibit, ...]:
    """What each probe of the study has to show, in the design's order; from what was measured alone."""
    return tuple(
        Exhibit() if result.measured[name] is None else probe_named(name).show(result, result.measured[name])
        for name in result.study.probes
    )


def left_out(result: StudyResult) -> list[Section]:
    """What the probes could not measure, and why."""
    reasons = tuple(f"{name}: {why}." for name in result.study.probes for why in result.unmeasured.get(name, ()))
    return [Heading("What could not be measured"), Listing(reasons)] if reasons else []


def sections_of(exhibit: Exhibit, report: Path) -> list[Section]:
    """The sections of an exhibit, its figures saved into the report's folder.

    Raises:
        StorageError: the disk did not take a figure.
    """
    return [written(section, report) if isinstance(section, Plot) else section for section in exhibit.sections]
