"""A walkthrough on a terminal, and where there is none."""

import io
import re

import pytest
from handmade import CASES, NASTY, step, walkthrough
from rich.console import Console

from vitral.app.terminal import walkthrough as printing
from vitral.explanation import Chapter, Panel, Walkthrough, to_text


def bare(written: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", written)


def on_screen(told: Walkthrough, monkeypatch: pytest.MonkeyPatch, width: int = 200) -> str:
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system="truecolor", markup=False)
    monkeypatch.setattr(printing, "console", lambda: screen)
    printing.print_walkthrough(told, 3)
    written = screen.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_a_terminal_shows_the_same_numbers_coloured_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, shares = (1, 0), ((1.0, 0.0), (0.25, 0.75))
    weights = Panel("", shares, ("a", "b"), ("c", "d"), True, cell, CASES["small"].working)
    told = Walkthrough(NASTY, (), (Chapter("", (step(weights, is_share=True),)),))
    written = on_screen(told, monkeypatch)
    assert re.search(r"\x1b\[[\d;]*48;[\d;]*m\s*1\.00", written)  # all of the weight: a background
    assert not re.search(r"\x1b\[[\d;]*48;[\d;]*m\s*0\.00", written)
    assert re.search(r"\x1b\[[\d;]*7[\d;]*m\s*0\.25", written)  # the chosen one: reversed
    assert "\x1b[31m \u202e" not in written
    assert re.search(r"a +1\.00 +0\.00\s+b +0\.25 +0\.75", bare(written))
    assert "n[1,0] = a[1]·b[0]" in bare(written)


def test_where_there_is_no_terminal_the_text_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    told = walkthrough(CASES["far"])
    printing.print_walkthrough(told, 2)
    assert capsys.readouterr().out == to_text(told, digits=2) + "\n"


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_loses_no_number(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (bare(on_screen(walkthrough(CASES["wide"]), monkeypatch, columns)) for columns in (width, 200))
    lines = narrow.splitlines()
    shown = [sorted(re.findall(r"−?\d+\.\d{3}", each)) for each in (narrow, wide)]
    assert shown[0] == shown[1]
    assert max(map(len, lines)) <= width
