"""docs/check-your-notes.md and docs/pt/check-your-notes.md are transcripts: their commands print what they show.

A line that begins with `$ ` in a block ```console is a command, the lines after it are its output; a line `…` stands
for any number of lines. The one block ```toml is the file that the commands read.
"""

import re
import shlex
from pathlib import Path

import pytest

from vitral.app.terminal import run

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"en": DOCS / "check-your-notes.md", "pt": DOCS / "pt" / "check-your-notes.md"}
ANY = "…"
CODES = {"check": 1}
"""Exit codes of the commands; others end with 0."""


def fits(shown: str, printed: str) -> bool:
    """Whether an output is what the document shows, blanks at the ends of lines left aside."""
    pattern = "\n".join(".*" if line == ANY else re.escape(line.rstrip()) for line in shown.strip().splitlines())
    return re.fullmatch(pattern, "\n".join(map(str.rstrip, printed.strip().splitlines())), re.DOTALL) is not None


@pytest.mark.merge
@pytest.mark.parametrize("language", PAGES)
def test_the_commands_print_what_the_document_shows(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGES[language].read_text(encoding="utf-8")
    [example] = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    name = re.search(r"`(\w+\.toml)`", page)
    assert name is not None
    Path(name[1]).write_text(example, encoding="utf-8")
    count = 0
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = entry.partition("\n")
            program, *arguments = shlex.split(command)
            assert program == "vitral"
            capsys.readouterr()
            code = run([*arguments, "--lang", language])
            printed = capsys.readouterr().out
            assert code == CODES.get(arguments[0], 0), command
            assert fits(shown, printed), f"{command}\n{printed}"
            count += 1
    assert count >= 5
