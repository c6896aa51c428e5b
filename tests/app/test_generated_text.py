"""Text of a model is exact where it is kept, and steers no terminal."""

import io
import sys

import pytest

from vitral.app.results import Samples
from vitral.app.terminal.views import show_samples, write_text
from vitral.decoding import Sample

TEXT = "می\u200cروم 👩\u200d👧 é\r\n\x1b[31m\x85\u202e"


class Screen(io.TextIOWrapper):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.TextIOWrapper, Screen])
@pytest.mark.parametrize("way", ["stream", "samples"])
def test_what_is_not_shown_on_a_terminal_is_exact(
    kind: type[io.TextIOWrapper], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", kind(raw, encoding="utf-8" if kind is Screen else "ascii", newline="\r\n"))
    if way == "stream":
        for piece in ("A", TEXT, "end", "\n"):
            write_text(piece)
    else:
        show_samples(Samples("run", 1, (Sample("A", f"{TEXT}end", (1,), "length"),)))
    written = raw.getvalue().decode("utf-8")
    if kind is Screen:
        assert written == "Aمی\u200cروم 👩\u200d👧 é␍\r\n␛[31m⟨U+0085⟩⟨U+202E⟩end\r\n"
    else:
        assert written == f"A{TEXT}end\n"
