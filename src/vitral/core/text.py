"""Text ready to show: numbers with a real minus sign, and text from files and models without hidden characters."""

import unicodedata
from collections.abc import Collection, Sequence

from vitral.core.language import NEEDED, number

NONE = "\N{EN DASH}"
"""A cell without a value."""
SPACE = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
LEAST_P = 1e-4

_SHOWN_AS_THEY_ARE = "\n\t"
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_CONTROL_PICTURES = 0x2400
_DELETE = 0x7F


def capital(text: str) -> str:
    """The text with a capital first letter; the other letters stay.

    >>> capital("no norm, RMSNorm")
    'No norm, RMSNorm'
    """
    return text[:1].upper() + text[1:]


def minus(text: str) -> str:
    r"""The text with each hyphen replaced by a minus sign; for text that is numbers only.

    >>> minus("-0.5 to -0.1") == "\N{MINUS SIGN}0.5 to \N{MINUS SIGN}0.1"
    True
    """
    return text.replace("-", MINUS)


def unbroken(text: str) -> str:
    r"""The text with no-break spaces, so that it stays on one line.

    >>> unbroken("1 to 2") == "1\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}2"
    True
    """
    return text.replace(" ", SPACE)


def signed(value: float, digits: int = 3) -> str:
    r"""A number with its sign, plus or minus.

    >>> signed(-0.0421) == "\N{MINUS SIGN}0.042"
    True
    """
    return minus(number(value, f"+.{digits}f"))


def nats(value: float) -> str:
    """A loss, in nats per token.

    >>> nats(1.7634)
    '1.763'
    """
    return number(value, ".3f")


def p_text(p: float | None) -> str:
    """A p value.

    >>> p_text(0.00001), p_text(0.0312)
    ('< 0.0001', '0.031')
    """
    if p is None:
        return NONE
    return f"< {number(LEAST_P, '.4f')}" if p < LEAST_P else number(p, ".4f" if p < 0.01 else ".3f")


def p_clause(p: float) -> str:
    """A p value in a sentence: `p = 0.031`, `p < 0.0001`."""
    text = p_text(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def big(count: float) -> str:
    """A large count with a metric prefix and three digits.

    >>> big(429312), big(2.4e9), big(57)
    ('429 k', '2.40 G', '57')
    """
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            scaled = count / limit
            return f"{number(scaled, f'.{2 if scaled < 10 else 1 if scaled < 100 else 0}f')} {prefix}"
    return number(count, ".0f")


def visible(text: str) -> str:
    r"""The text with every control, formatting, unassigned or surrogate character written out; newline and tab stay.

    Characters that reorder or hide their neighbours (bidirectional overrides, zero-width spaces) and lone surrogates,
    which no file can hold, become `⟨U+XXXX⟩`; the C0 controls get their pictures. The joiners and marks that scripts
    and emoji need (`NEEDED`) stay.

    >>> visible("a\x1b[31mb\u202ec\n")
    'a␛[31mb⟨U+202E⟩c\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_picture(character) for character in text)


def _picture(character: str) -> str:
    hidden = unicodedata.category(character) in _HIDDEN_CATEGORIES and not NEEDED.match(character)
    if character in _SHOWN_AS_THEY_ARE or not hidden:
        return character
    point = ord(character)
    if point < ord(" "):
        return chr(_CONTROL_PICTURES + point)
    return "␡" if point == _DELETE else f"⟨U+{point:04X}⟩"


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Lines of cells with two spaces between columns, those of `left` flush left, the others flush right.

    >>> aligned([["a", "10"], ["bc", "5"]])
    ['a   10', 'bc   5']
    """
    widths = [max(map(columns, cells)) for cells in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        padded = ((cell, " " * (width - columns(cell))) for cell, width in zip(row, widths, strict=True))
        cells = (cell + blank if at in left else blank + cell for at, (cell, blank) in enumerate(padded))
        lines.append("  ".join(cells).rstrip())
    return lines


def columns(text: str) -> int:
    """Columns of the text in a terminal: two for wide characters, none for combining ones and joiners."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    return len(text) + wide - marks
