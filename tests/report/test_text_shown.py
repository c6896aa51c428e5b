"""Text from files and models is shown so that nothing in it is invisible or undrawable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.text import visible
from vitral.report.style import drawable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 中\n\tends", "plain é 中\n\tends"),
        ("\x00\x1b\r", "␀␛␍"),
        ("\x7f", "␡"),
        ("\x85", "⟨U+0085⟩"),
        ("a\u202eb\u200bc\ufeff", "a⟨U+202E⟩b⟨U+200B⟩c⟨U+FEFF⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("\u2028", "⟨U+2028⟩"),
        ("\xad\u2066\U000e0001", "⟨U+00AD⟩⟨U+2066⟩⟨U+E0001⟩"),
        *(
            (text, text)
            for text in (
                "می\u200cروم",
                "क्\u200dष",
                "👩\u200d👧❤\ufe0f",
                "א\u200f!",
                "\u06dd٧",
                "🏴\U000e0067\U000e007f",
            )
        ),
    ],
)
def test_hidden_characters_are_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters(codec=None)))
def test_what_is_visible_can_be_written_and_stays(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert visible(shown) == shown


@given(st.text(st.characters(codec=None), max_size=20))
def test_what_is_drawable_has_a_glyph_for_everything(text: str) -> None:
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    assert all(font.get_char_index(ord(character)) for character in drawable(text))


def test_the_symbol_for_space_becomes_one_the_font_has() -> None:
    assert drawable("␠to\n") == "␣to↵"
