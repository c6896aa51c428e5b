"""How `vitral corpus` looks on a terminal."""

from vitral.api.corpora import Survey, facts, ngram_rows
from vitral.cli.screen import console, say, table

SHOWN_RARE = 12


def print_survey(surveyed: Survey) -> None:
    """The text in numbers, its alphabet, the n-gram lines, its problems."""
    report, screen = surveyed.report, console()
    screen.print(table(f"The text: {report.name}", ("", ""), facts(report), words=2))
    ordered = sorted(report.alphabet, key=lambda entry: -entry.count)
    say("alphabet, commonest first: " + "  ".join(f"{entry.label} {entry.count:,}" for entry in ordered[:40]))
    if len(ordered) > 40:
        say(f"… and {len(ordered) - 40} more")
    if report.rare:
        rare = ", ".join(f"{entry.label} {entry.code_point} ×{entry.count}" for entry in report.rare[:SHOWN_RARE])
        say(f"rare: {rare}" + (" …" if len(report.rare) > SHOWN_RARE else ""))
    say()
    screen.print(table("What counting alone achieves", ("", "nats per token"), ngram_rows(surveyed.lines)))
    for note in report.notes:
        say(f"note: {note}")
    for problem in report.problems:
        say(f"problem: {problem}")
    if not report.problems:
        say("no problems found")
