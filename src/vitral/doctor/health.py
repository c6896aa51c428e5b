"""The results of health checks."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from vitral.core.errors import VitralError, reason
from vitral.core.files import names
from vitral.core.language import N_, _
from vitral.core.seals import MANIFEST, check_report
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.core.text import visible

MARKS = {"ok": "✓", "wrong": "✗", "unknown": "·"}


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check.

    Attributes:
        mark: "ok" or "wrong", or "unknown" where it was not checked.
        what: the subject of the check, in English.
        found: the result in one line, as a message.
    """

    mark: Literal["ok", "wrong", "unknown"]
    what: str
    found: str


class Unchecked(VitralError):
    """A check cannot be made here."""


def check(what: str, examine: Callable[..., str], *given: Any) -> HealthCheck:
    """What an examination returns is in order; what it raises is wrong, or says why nothing was checked."""
    try:
        return HealthCheck("ok", what, examine(*given))
    except Unchecked as error:
        return HealthCheck("unknown", what, reason(error))
    except VitralError as error:
        return HealthCheck("wrong", what, reason(error))


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown, Tabular):
    """The results of all checks.

    Attributes:
        findings: one for each check.
        repaired: what was repaired before, one line each.
    """

    findings: tuple[HealthCheck, ...]
    repaired: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether no check found something wrong."""
        return all(finding.mark != "wrong" for finding in self.findings)

    def __str__(self) -> str:
        """One line for each repair and each check, in the current language."""
        width = max((len(_(check.what)) for check in self.findings), default=0)
        lines = [f"{MARKS[check.mark]} {_(check.what):{width}}  {_(check.found)}" for check in self.findings]
        return visible("\n".join([*map(_, self.repaired), *lines]))

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        repaired = {"repaired": list(self.repaired)} if self.repaired else {}
        return {"healthy": self.healthy, "findings": self.records(), **repaired}

    def records(self) -> list[dict[str, Any]]:
        """One row for each check."""
        return [asdict(finding) for finding in self.findings]


def examine_report(folder: Path) -> Iterator[HealthCheck]:
    """Pages and figures, compared with their manifest; nothing where there are none."""
    is_listed, complaints = MANIFEST in names(folder), check_report(folder)
    for complaint in complaints:
        yield HealthCheck("wrong" if is_listed else "unknown", N_("report"), complaint)
    if is_listed and not complaints:
        yield HealthCheck("ok", "report", N_("agrees with its manifest"))
