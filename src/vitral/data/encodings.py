"""Encodings: the names that Python knows, and a guess at the encoding of bytes that are not UTF-8.

Nothing is ever decoded by a guess. A guess only completes the message of a refusal, with words of the file as each
likely encoding reads them, so that the user can see which is right.
"""

import codecs
import contextlib
import encodings.aliases
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import BinaryIO

from vitral.core.config import closest, shown
from vitral.core.language import N_, _

SAMPLE = 1 << 16
"""Bytes from which an encoding is guessed."""

NAMES = {
    "shift_jis": "Shift-JIS",
    "cp932": N_("Shift-JIS of Windows"),
    "euc_jp": "EUC-JP",
    "gb18030": N_("GBK or GB18030"),
    "big5": "Big5",
    "big5hkscs": N_("Big5 of Hong Kong"),
    "euc_kr": "EUC-KR",
    "cp949": N_("EUC-KR of Windows"),
    "cp1251": "windows-1251",
    "koi8_r": "KOI8-R",
    "cp1252": "windows-1252 (Latin-1)",
    "utf_16_le": "UTF-16",
    "utf_16_be": "UTF-16 (big-endian)",
    "cp1250": "windows-1250",
    "iso8859_2": "ISO 8859-2",
    "cp1253": "windows-1253",
    "iso8859_7": "ISO 8859-7",
    "cp1254": "windows-1254",
    "cp1255": "windows-1255",
    "cp1256": "windows-1256",
    "latin_1": "ISO 8859-1 (Latin-1)",
}
"""The encodings that are guessed: Python's name -> the usual name. Of two that read a text alike, the first counts."""

_SCRIPTS = {
    **dict.fromkeys(("shift_jis", "cp932", "euc_jp"), "Japanese"),
    **dict.fromkeys(("euc_kr", "cp949"), "Korean"),
    **dict.fromkeys(("gb18030", "big5", "big5hkscs"), "Chinese"),
    **dict.fromkeys(("cp1251", "koi8_r", "cp1253", "iso8859_7", "cp1255", "cp1256"), "another alphabet"),
}
_LETTERS = {
    "kana": re.compile("[\u3041-\u30ff]"),
    "narrow": re.compile("[\uff66-\uff9f]"),
    "hangul": re.compile("[\uac00-\ud7a3]"),
    "beside Latin": re.compile("[A-Za-z][^\x00-\x7f]|[^\x00-\x7f][A-Za-z]"),
}
_DOUBTFUL = 0.2
_LONGEST_WORDS = 9
"""Mean number of letters of a word from which a text is not Korean, which has spaces between words."""
_CLOSE = 0.02
"""Encodings whose text is less than this more chaotic than the best (charset-normalizer's measure) are likely too."""
_MOST_LIKELY = 3
_FEW, _MOST = 0.2, 0.9
"""Shares of small bytes: at most, in the lower half of UTF-16; at least, in the upper half."""
_NO_TEXT = {"Cc", "Cn", "Co", "Cs"}
"""Unicode categories: control, unassigned, private use, surrogate."""
_BINARY = 0.05
"""Share of control characters above which bytes are no text."""
_TEXT_CONTROLS = b"\t\n\r\f\x1b"
_WORD = 16


def codec_name(name: str) -> str | None:
    """Python's name of an encoding, None for UTF-8 (the default).

    >>> codec_name("Shift-JIS"), codec_name("latin1"), codec_name("UTF8")
    ('shift_jis', 'iso8859-1', None)

    Raises:
        ValueError: Python has no such encoding, or it does not decode bytes to text.
    """
    try:
        found = codecs.lookup(name).name
        with contextlib.suppress(UnicodeDecodeError):  # one byte may be too few
            b"a".decode(found)
    except (LookupError, ValueError) as error:
        if "not a text encoding" in str(error):
            advice = _("{name} does not turn bytes into text; give an encoding such as 'cp1252'", name=shown(name))
        else:
            wanted = name.lower().replace("-", "_")
            known = {*encodings.aliases.aliases, *encodings.aliases.aliases.values()} - {wanted}
            hint = closest(wanted, known) or _("known are those of Python, such as 'cp1252', 'shift_jis', 'utf-16'")
            advice = _("{name} is not an encoding; {hint}", name=shown(name), hint=hint)
        raise ValueError(advice) from None
    return None if found in ("utf-8", "utf-8-sig") else found


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def unmarked_utf(head: bytes) -> str | None:
    r"""The encoding of a text in UTF-16 or UTF-32 without byte order mark, by the places of its small bytes.

    Such bytes are often valid UTF-8. None for a text of another kind, or of a script with few small bytes.

    >>> unmarked_utf("one".encode("utf-16-be")), unmarked_utf(b"o\0n\0e\0"), unmarked_utf(b"o\0n\0e")
    ('utf-16-be', 'utf-16-le', None)
    """
    for name, width in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        if len(head) % width == 0 and head:
            columns = [head[place::width] for place in range(width)]
            low, *rest = columns if name.endswith("le") else columns[::-1]
            if _small(low) < _FEW and all(0 in column and _small(column) > _MOST for column in rest[-width // 2 :]):
                return name if _is_text(head, name) else None
    return None


def _small(column: bytes) -> float:
    """The share of bytes below 9: the upper halves of Latin, Greek, Cyrillic, Hebrew and Arabic, but no white space."""
    return sum(column.count(byte) for byte in range(9)) / len(column)


def _is_text(head: bytes, name: str) -> bool:
    """Whether bytes are characters without control characters in this encoding; the last one may be cut."""
    try:
        found = set(codecs.getincrementaldecoder(name)().decode(head))
    except UnicodeDecodeError:
        return False
    return not any(unicodedata.category(character) in _NO_TEXT for character in found - set("\t\n\r\f"))


def sample_around(file: BinaryIO, place: int) -> bytes:
    """About `SAMPLE` bytes around the byte at `place`, in whole lines if possible; moves the file's position."""
    begin = 0 if place < SAMPLE // 2 else place - SAMPLE // 4
    file.seek(begin)
    sample = file.read(SAMPLE)
    line = sample.find(b"\n", 0, place - begin) + 1 if begin else 0
    return _whole_lines(sample[line:]) if len(sample) == SAMPLE else sample[line:]


def guess(sample: bytes) -> str:
    """The end of a message about bytes that are not UTF-8: what they may be, and what to do.

    Args:
        sample: bytes of the file, see `sample_around`.
    """
    lost, kept = _as_utf8(sample)
    if kept >= 4 * lost:
        return _(
            "the bytes around are UTF-8, so the file is damaged or cut there: repair it there, or remove the bytes"
        )
    likely = _likely(sample)
    if likely:
        named = _(" or ").join(f"{_(NAMES[name])} (“{word}”)" for name, word in likely)
        options = _(" or ").join(name for name, _word in likely)
        if len(likely) == 1:
            return _("it looks like {names}: give --encoding {encodings}", names=named, encodings=options)
        return _("it may be {names}: give --encoding {encodings}", names=named, encodings=options)
    controls = sum(sample.count(byte) for byte in range(32) if byte not in _TEXT_CONTROLS)
    if controls > _BINARY * len(sample):
        return _("it looks like binary data; give a text")
    return _("its encoding is not one that Vitral recognises: save it as UTF-8, or give --encoding NAME")


def _as_utf8(sample: bytes) -> tuple[int, int]:
    """How many places of the sample are not UTF-8, and how many characters beyond ASCII are."""
    text = sample.decode("utf-8", "replace")
    lost = text.count("\ufffd")
    return lost, sum(not character.isascii() for character in text) - lost


def _likely(sample: bytes) -> list[tuple[str, str]]:
    """The likely encodings, best first, each with a word of the sample as it reads it."""
    from charset_normalizer import from_bytes

    isolated = list(NAMES)
    matches = list(
        from_bytes(sample, cp_isolation=isolated) or from_bytes(sample, cp_isolation=isolated, threshold=0.5)
    )
    found = [(match, _first_name(match.could_be_from_charset)) for match in matches]
    doubts = [match.chaos + _doubt(name, sample.decode(name)) for match, name in found]
    ranked = sorted(
        (-round(match.coherence, 2), isolated.index(name), sample.decode(name))
        for (match, name), doubt in zip(found, doubts, strict=True)
        if doubt <= min(doubts) + _CLOSE
    )[:_MOST_LIKELY]
    texts = [text for _coherence, _index, text in ranked]
    return [
        (isolated[index], word) for (_coherence, index, _text), word in zip(ranked, _telling_words(texts), strict=True)
    ]


def _whole_lines(sample: bytes) -> bytes:
    r"""The sample without a last line that may be cut inside a character (UTF-16 writes `\n` as two bytes)."""
    end = sample.rfind(b"\n") + 1 or len(sample)
    return sample[: end + 1] if sample[end : end + 1] == b"\0" else sample[:end]


def _first_name(names: Collection[str]) -> str:
    return next(name for name in NAMES if name in names)


def _doubt(name: str, text: str) -> float:
    """How much the script of a text speaks against the language of an encoding, for or against (0 for most)."""
    if name not in _SCRIPTS:
        return 0.0
    counts = {script: len(pattern.findall(text)) for script, pattern in _LETTERS.items()}
    letters = max(sum(not character.isascii() for character in text), 1)
    shares = {script: count / letters for script, count in counts.items()}
    if _SCRIPTS[name] == "Japanese":
        return _DOUBTFUL if shares["narrow"] > 0.2 else -_DOUBTFUL if shares["kana"] > 0.2 else 0.0
    if _SCRIPTS[name] == "another alphabet":
        return _DOUBTFUL if shares["beside Latin"] > 0.3 else 0.0
    if _SCRIPTS[name] == "Korean":
        words = len(text.split())
        return 0.0 if shares["hangul"] > 0.8 and letters < _LONGEST_WORDS * words else _DOUBTFUL
    return _DOUBTFUL if shares["kana"] > 0.1 else 0.0


def _telling_words(texts: Sequence[str]) -> list[str]:
    """A few characters of each text from one place: where the first two differ, else where ASCII ends."""
    if not texts:
        return []
    same_length = len(texts) > 1 and len(texts[0]) == len(texts[1])
    pairs = zip(texts[0], texts[1], strict=True) if same_length else ((c, c) for c in texts[0])
    place = next(
        (at for at, (one, other) in enumerate(pairs) if (one != other if same_length else not one.isascii())), 0
    )
    return [_word(text, min(place, len(text) - 1)) for text in texts]


def _word(text: str, place: int) -> str:
    begin = place
    while begin > 0 and place - begin < _WORD - 4 and text[begin - 1].isalnum():
        begin -= 1
    found = text[begin : begin + _WORD].split()
    return "".join(character for character in (found[0] if found else "") if character.isprintable())
