"""The gallery's pages: each worked example with its verdict, its corrected numbers, and every step."""

from vitral.api.explaining import find_example, gallery
from vitral.explain import Report, Verdict, check, phrases, to_sections, walk_example
from vitral.explain.verdicts import first_wrong, rows, summary
from vitral.figures.markdown import markdown
from vitral.figures.sections import Callout, Heading, Preformatted, Section, Table

SAY = phrases("en")
INDEX = "README.md"


def gallery_pages() -> dict[str, str]:
    """Every page as Markdown by its file's name, the list of them all among them."""
    reports = {name: check(find_example(name)) for name in gallery()}
    pages = {f"{name}.md": _page(name, report) for name, report in reports.items()}
    return {INDEX: _index(reports), **pages}


def _index(reports: dict[str, Report]) -> str:
    """The list, those of the source documents after our own."""
    own = [(name, report) for name, report in reports.items() if not report.example.source]
    others = [(name, report) for name, report in reports.items() if report.example.source]
    lines = ["# Gallery of worked examples", ""]
    lines += [
        "Each can be shown (`vitral explain NAME`) and checked (`vitral check NAME`); the numbers are the tests', too."
    ]
    for heading, listed in (
        ("Ours, to be done by hand", own),
        ("From course notes, with what is wrong in them", others),
    ):
        lines += ["", f"## {heading}", "", "| example | what it is | verdict |", "| --- | --- | --- |"]
        lines += [f"| [{name}]({name}.md) | {report.example.title} | {_verdict(report)} |" for name, report in listed]
    return "\n".join(lines) + "\n"


def _verdict(report: Report) -> str:
    return SAY(f"check.{report.worst}") if report.worst is not Verdict.wrong else first_wrong(report, SAY)


def _page(name: str, report: Report) -> str:
    """One example."""
    example = report.example
    sections: list[Section] = [Callout(summary(report, SAY))]
    told = list(rows(report, SAY))
    if told:
        columns = tuple(SAY(f"check.{key}") for key in ("step", "place", "claimed", "expected", "verdict", "guess"))
        lines = tuple(
            (
                row.step,
                row.where,
                "  ".join(row.claimed),
                "  ".join(row.expected),
                SAY(f"check.{row.verdict}"),
                row.guess,
            )
            for row in told
        )
        sections.append(Table(first_wrong(report, SAY), columns, lines, prose=tuple(range(1, 6))))
        sections += [Preformatted("\n".join(row.working for row in told if row.working))]
    sections += [Heading("The file"), Preformatted(example.text), Heading("Every step")]
    sections += to_sections(walk_example(example))
    lead = " ".join(part for part in (example.note, SAY("explain.source", source=example.source)) if part)
    return markdown(
        example.title, sections, lead=lead if example.source else example.note, footer=f"vitral check {name}"
    )
