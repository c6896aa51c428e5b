"""Checks and repairs of a machine, a run, a study; here the results of the checks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from vitral.core.errors import VitralError, reason
from vitral.core.files import names
from vitral.core.language import _
from vitral.core.seals import MANIFEST, check_report
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.core.text import visible

Mark = Literal["ok", "wrong", "unknown"]
MARKS: dict[Mark, str] = {"ok": "✓", "wrong": "✗", "unknown": "·"}


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check.

    Attributes:
        mark: "ok" or "wrong", or "unknown" where it was not checked.
        what: the subject of the check, in English.
        found: the result in one line, as a message.
    """

    mark: Mark
    what: str
    found: str


def finding(mark: Mark, what: str, sentence: str, /, **places: Any) -> HealthCheck:
    """A check with its result: a sentence with values in its places."""
    return HealthCheck(mark, what, reason(VitralError(sentence, **places)))


ok, wrong, unknown = (partial(finding, mark) for mark in MARKS)


class Unchecked(VitralError):
    """A check cannot be made here."""


def check(what: str, examine: Callable[..., str], *given: Any) -> HealthCheck:
    """What an examination returns is in order; what it raises is wrong, or says why nothing was checked."""
    try:
        return ok(what, examine(*given))
    except Unchecked as error:
        return unknown(what, reason(error))
    except VitralError as error:
        return wrong(what, reason(error))


def collected(what: str, made: Iterable[HealthCheck]) -> Iterator[HealthCheck]:
    """Checks as they are made; an error ends them, and is one of them."""
    try:
        yield from made
    except (VitralError, OSError) as error:
        yield wrong(what, reason(error))


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
    yield from ((wrong if is_listed else unknown)("report", complaint) for complaint in complaints)
    if is_listed and not complaints:
        yield ok("report", "agrees with its manifest")
