"""How studies look on a terminal."""

from vitral.api.study_costs import study_costs
from vitral.cli.screen import console, say, table
from vitral.reports.study import StudyPage
from vitral.studies import study_names
from vitral.studies.design import BUDGETS


def list_studies() -> None:
    """Every named study with its question, and what it costs here at each budget."""
    costs = {(cost.name, cost.budget): cost for cost in study_costs()}
    rows = [
        (name, question, *(_minutes(costs[name, budget].minutes) for budget in BUDGETS))
        for name, question in study_names().items()
    ]
    console().print(table("Studies", ("name", "question", *BUDGETS), rows, words=2))
    say("Times are for this machine as it is now, from a few timed steps. vitral study NAME --budget standard")


def _minutes(minutes: float) -> str:
    """A time in one short word.

    >>> _minutes(0.4), _minutes(7.2), _minutes(200.0)
    ('1 min', '7 min', '3.3 h')
    """
    return f"{max(1, round(minutes))} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def print_findings(report: StudyPage) -> None:
    """The verdict."""
    say("verdict:")
    for finding in report.claims:
        say(f"  {finding.text}")
