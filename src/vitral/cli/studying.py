"""How studies look on a terminal."""

from vitral.cli.screen import console, say, table
from vitral.studies import Report, study_names


def list_studies() -> None:
    """Every named study with its question."""
    console().print(table("Studies", ("name", "question"), list(study_names().items()), words=2))


def print_findings(report: Report) -> None:
    """The verdict."""
    say("verdict:")
    for finding in report.findings:
        say(f"  {finding.text}")
