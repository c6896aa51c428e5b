"""Text that comes from files and models, made safe to show: nothing invisible, nothing a font cannot draw."""

import unicodedata
from functools import cache

_SHOWN_AS_THEY_ARE = "\n\t"
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_CONTROL_PICTURES = 0x2400
_DELETE = 0x7F


def visible(text: str) -> str:
    r"""The text with every control, formatting, unassigned or surrogate character written out; newline and tab stay.

    Characters that reorder or hide their neighbours (bidirectional overrides, zero-width joiners) and lone surrogates,
    which no file can hold, become `⟨U+XXXX⟩`; the C0 controls get their pictures.

    >>> visible("a\x1b[31mb\u202ec\n")
    'a␛[31mb⟨U+202E⟩c\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_picture(character) for character in text)


def _picture(character: str) -> str:
    if character in _SHOWN_AS_THEY_ARE or unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    point = ord(character)
    if point < ord(" "):
        return chr(_CONTROL_PICTURES + point)
    return "␡" if point == _DELETE else f"⟨U+{point:04X}⟩"


def drawable(text: str) -> str:
    """One line that the bundled font can draw whole: what it has no glyph for is written as its code point.

    >>> drawable("a␠中")
    'a␣U+4E2D'
    """
    font = _font()
    line = visible(text).replace("\n", "↵").replace("\t", "→").replace("␠", "␣")
    return "".join(c if font.get_char_index(ord(c)) else f"U+{ord(c):04X}" for c in line)


@cache
def _font():
    """DejaVu Sans, which comes with matplotlib."""
    from matplotlib import font_manager

    return font_manager.get_font(font_manager.findfont("DejaVu Sans"))
