"""The progress of all workers of a study in one view."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitral.core.checked import checked
from vitral.core.language import N_, _, number
from vitral.core.tables import Tabular
from vitral.figures.html import page
from vitral.figures.notebook import Shown, page_of
from vitral.figures.plain import plain_text
from vitral.figures.sections import Paragraph, Section
from vitral.figures.tables import Column, DataTable, as_text, whole
from vitral.reports.study import HTML
from vitral.studies.crew import FINISHED, JobState, read_crew
from vitral.studies.record import REPORT


@checked(first=True)
@dataclass(frozen=True, repr=False)
class StudyProgress(Shown, Tabular):
    """The jobs of a planned study and who is at them.

    Attributes:
        study: its name.
        folder: of the study.
        threads: of each training; None if the plan leaves them open.
        jobs: the state of each, the page last.
        html: the study's page; None if it is not made yet.
    """

    study: str
    folder: Path
    threads: int | None
    jobs: tuple[JobState, ...]
    html: Path | None

    @classmethod
    def read(cls, folder: Path) -> "StudyProgress":
        """The progress as the folder shows it now.

        Raises:
            UsageError: it has no plan, or a file of the plan was changed.
        """
        plan, jobs = read_crew(folder)
        html = folder / REPORT / HTML if jobs[-1].state == FINISHED else None
        return cls(str(plan["study"]), folder, plan["threads"], tuple(jobs), html)

    @property
    def finished(self) -> int:
        """Finished trainings."""
        return sum(job.state == FINISHED for job in self.jobs[:-1])

    @property
    def is_finished(self) -> bool:
        """Whether the page is made."""
        return self.html is not None

    @property
    def title(self) -> str:
        """The heading."""
        return _(
            "{study}: {done} of {all} trainings finished",
            study=self.study,
            done=number(self.finished, ","),
            all=number(len(self.jobs) - 1, ","),
        )

    def __str__(self) -> str:
        """The view as the command prints it."""
        return plain_text("", crew_sections(self), lead="")

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        html = None if self.html is None else str(self.html)
        return {
            "study": self.study,
            "folder": str(self.folder),
            "threads": self.threads,
            "jobs": self.records(),
            "html": html,
        }

    def records(self) -> list[dict[str, Any]]:
        """One row for each job."""
        return [asdict(job) for job in self.jobs]

    def table(self) -> DataTable:
        """The jobs, in a form to be written."""
        columns = (
            Column("job", N_("job"), as_text, is_prose=True),
            Column("state", N_("state"), lambda value: _(value), is_prose=True),
            Column("step", N_("step"), whole),
            Column("steps", N_("steps"), whole),
            Column("worker", N_("worker"), as_text, is_prose=True),
            Column("claims", N_("claims"), whole),
            Column("reason", N_("last crash"), as_text, is_prose=True),
        )
        keys = [column.key for column in columns]
        return DataTable(self.title, columns, [{key: row[key] for key in keys} for row in self.records()])


def crew_sections(progress: StudyProgress) -> list[Section]:
    """The view as sections of a page."""
    shown = progress.table().section()
    made = [] if progress.html is None else [Paragraph(_("report: {path}", path=progress.html))]
    return [shown, *made]


@page_of.register
def _crew_page(progress: StudyProgress) -> str:
    return page(progress.title, crew_sections(progress))
