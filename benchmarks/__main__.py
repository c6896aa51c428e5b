"""`python -m benchmarks [ROW …]`: measure, print, and save the results of this machine."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import figure, table
from benchmarks.machine import describe_machine, machine_slug
from benchmarks.options import QUICK_ROUNDS, LeftOut, Options
from benchmarks.peers import nanogpt
from benchmarks.rows import ON_REQUEST, ROWS, USUAL, board, together
from vitral.core.files import replace_durably
from vitral.report.style import FORMATS, drawn_bytes

RESULTS = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    """The command line arguments."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    # `choices` would refuse the empty list, which means all rows, so rows are checked here.
    made.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)}; if none is named, all but {', '.join(ON_REQUEST)}"
    )
    made.add_argument("--quick", action="store_true", help="a smoke run: numbers that mean nothing, nothing is kept")
    made.add_argument("--rounds", type=_count, default=None, help=f"of each contender (default {Options.rounds})")
    made.add_argument("--seeds", type=_count, default=Options.seeds, help="of the rows that train to a target loss")
    made.add_argument("--threads", type=_count, default=None, help="of every contender (default PyTorch's)")
    made.add_argument("--out", type=Path, default=None, metavar="FOLDER", help="for the results of this machine")
    made.add_argument("--nanogpt", type=Path, default=None, metavar="FOLDER", help="a checkout of nanoGPT")
    made.add_argument(
        "--text",
        action="append",
        default=[],
        metavar="PATH|NAME",
        help="one more text of nanogpt-minute, or tiny Shakespeare for board; repeatable",
    )
    made.add_argument("--minutes", type=int, choices=board.MINUTES, default=Options.minutes, help="of board")
    made.add_argument(
        "--config", type=Path, action="append", default=[], metavar="FILE.toml", help="a run on board; repeatable"
    )
    return made


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows; return the exit code, 1 if a row requested by name could not be measured."""
    given = parser()
    said = given.parse_args(arguments)
    if unknown := [row for row in said.rows if row not in ROWS]:
        given.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if said.threads is not None:
        torch.set_num_threads(said.threads)
    # A smoke test's numbers are not results: they are saved only on request.
    folder = said.out or (None if said.quick else RESULTS)
    options = Options(
        rounds=said.rounds or (QUICK_ROUNDS if said.quick else Options.rounds),
        seeds=said.seeds,
        threads=torch.get_num_threads(),
        quick=said.quick,
        nanogpt=said.nanogpt,
        texts=tuple(said.text),
        minutes=said.minutes,
        configs=tuple(said.config),
        records=None if folder is None else folder / board.FILE,
    )
    console = Console()
    try:
        if options.nanogpt is not None:
            nanogpt.load(options.nanogpt)
    except LeftOut as reason:
        given.error(str(reason))
    left_out = _measure(said.rows or USUAL, options, folder, console)
    return 1 if any(row in said.rows for row in left_out) else 0


def _measure(rows: Sequence[str], options: Options, folder: Path | None, console: Console) -> list[str]:
    """Measure the rows one by one, saving each result at once; return the skipped rows."""
    machine = describe_machine(options.threads)
    console.print(f"{machine['processor']}, {machine['cores']} cores, {options.threads} threads", highlight=False)
    slug, kept = machine_slug(machine), {}
    left_out: list[str] = []
    for measure, names in together(rows):
        try:
            sections = measure(names, options)
        except LeftOut as reason:
            console.print(f"{', '.join(names)}: left out: {reason}", markup=False, highlight=False)
            left_out += names
            continue
        left_out += sorted(set(names) - {section.row for section in sections})
        for section in sections:
            table.show(section, console)
        if folder is not None:
            kept = table.write(folder / f"{slug}.json", machine, sections)
    if folder is not None and kept:
        title = f"{machine['processor']}, {options.threads} threads, {machine['date']}"
        in_order = {row: kept[row] for row in ROWS if row in kept}
        drawn = figure.draw(figure.bars(in_order), title)
        for kind in FORMATS:
            replace_durably(folder / f"{slug}.{kind}", drawn_bytes(drawn, kind))
        console.print(f"kept in {folder}", highlight=False)
    return left_out


if __name__ == "__main__":
    sys.exit(main())
