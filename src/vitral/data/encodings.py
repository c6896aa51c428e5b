"""Encodings: the names that Python knows, and a guess at the encoding of bytes that are not UTF-8.

Nothing is ever decoded by a guess. A guess only completes the message of a refusal, with words of the file as each
likely encoding reads them, so that the user can see which is right. Likely is the reading that takes the fewest bits in
the language that suits it best: by Zipf's law, the character of rank r in a language is r times rarer than its first.
"""

import codecs
import contextlib
import encodings.aliases
import re
import unicodedata
from collections import Counter
from functools import cache
from math import log2

from vitral.core.config import closest, shown
from vitral.core.language import N_, _

SAMPLE = 1 << 16
"""Bytes from which an encoding is guessed."""

NAMES = {
    "cp1252": "windows-1252 (Latin-1)",
    "iso8859_15": "ISO 8859-15 (Latin-9)",
    "cp1250": "windows-1250",
    "iso8859_2": "ISO 8859-2",
    "cp1254": "windows-1254",
    "cp1251": "windows-1251",
    "koi8_r": "KOI8-R",
    "cp1253": "windows-1253",
    "iso8859_7": "ISO 8859-7",
    "cp1255": "windows-1255",
    "cp1256": "windows-1256",
    "mac_roman": "Mac Roman",
    "cp850": N_("DOS Latin-1 (code page 850)"),
    "cp866": N_("DOS Cyrillic (code page 866)"),
    "shift_jis": "Shift-JIS",
    "cp932": N_("Shift-JIS of Windows"),
    "euc_jp": "EUC-JP",
    "gb18030": N_("GBK or GB18030"),
    "big5": "Big5",
    "big5hkscs": N_("Big5 of Hong Kong"),
    "euc_kr": "EUC-KR",
    "cp949": N_("EUC-KR of Windows"),
    "utf_16_le": "UTF-16",
    "utf_16_be": "UTF-16 (big-endian)",
}
"""The encodings that are guessed: Python's name -> the usual name. Of two that read a text alike, the first counts."""

_SIGNS = "’“”—–…‘«»„°€£©§®•·\N{NO-BREAK SPACE}ºª¿¡²³±×÷½¼µ、。，「」：；？！（）・ー\u3000،؟؛"
_LANGUAGES = (
    "",
    "ãáçéíóêõúâàô",
    "óíáéñúü",
    "éàèêçîâôûùïœëæü",
    "üäößé",
    "èàùòéì",
    "àéèçíòóúïü",
    "äöåéü",
    "øåæéöä",
    "ðíáþöéúóæý",
    "ëéïèöüóê",
    "łąęóżśćńźé",
    "íáéěšřžčýůúňďťóö",
    "áíéčšžľýúťňôďäĺŕó",
    "áéöóőíüúű",
    "ăâîşţșț",
    "čšžćđ",
    "ıüşğçöİâîû",
    "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфёъ",
    "оаинвртеіслкудмпзяьбгйчхцжїшюєщфґ",
    "аиеотнрсвклдпмзгубчъщжяйхцшюьф",
    "аоиенјрсутдквмпзблгшчћњцжђхљфџ",
    "ατοιενσπρλκμςηάίυέόωήγδθχφύβώξζψϊΐϋΰ",
    "יוהלארתבשמםנחדעקצפגטכסזןךףץ",
    "اليمونرتبةعدسفهكقأحجشطصخذىغضزئءثظإآؤپچژگک",
    "のにいはをたとがでてなしかるれっすりさまもらこくうあきつけおだんそどちみめやせよろえわほじごばひびげずふむぶべ"
    "ンスルトラリイクアロシドタレフジカマコッテムサ人日一大年出本中子見国言上分生手自行者前後時来家私何気方思間彼",
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家"
    "种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民"
    "第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话"
    "合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活",
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用道行所然家"
    "種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心她本前開但因只從想實日軍者意無力它與長把機十民"
    "第公此已工使情明性知全三又關點正業外將兩高間由問很最重並物手應戰向頭文體政美相見被利什二等產或新己制身果加西斯月話"
    "合回特代內信表化老給世位次度門任常先海通教兒原東聲提立及比員解水名真論處走義各入幾口認條平系氣題活",
    "이다는에의가을를고하은지로사한기도서어아대나라인리자시그해스일만들정것수전부와과게보장제여구주상조있으원비신연공없관우",
)
"""For each language its usual letters beyond ASCII, the most frequent first; English has none."""
_ASCII, _RARE = 5, 16
"""Bits of a character of ASCII, and of an unusual one beyond it."""
_LIKELY, _PLAUSIBLE = 8, 7.5
"""Bits that a reading takes more than the best one at most; bits of a byte beyond ASCII at most."""
_PLAIN = frozenset(map(chr, range(32, 127))) | frozenset("\t\n\r\f")
_LOST = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as Python keeps it in a text."""
_BEYOND = re.compile(r"[^ \t\r\n]{0,11}[^\0-\x7f][^ \t\r\n]{0,4}")
"""A word with a character beyond ASCII, or a part of a long one."""
_ALPHABETS, _MOST = "\u0900", 0.9
"""Above the alphabets of Europe and the Near East, and the share of a text in UTF-16 that is below it at least."""
_NO_TEXT = {"Cc", "Cn", "Co", "Cs"}
"""Unicode categories: control, unassigned, private use, surrogate."""
_CONTROL = re.compile(r"[\0-\x08\x0b\x0e-\x1f]")


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
        wanted = name.lower().replace("-", "_")
        known = {*encodings.aliases.aliases, *encodings.aliases.aliases.values()} - {wanted}
        near = "" if "not a text encoding" in str(error) else closest(wanted, known)
        hint = near or _("known are those of Python, such as 'cp1252', 'shift_jis', 'utf-16'")
        raise ValueError(_("{name} is not an encoding of text; {hint}", name=shown(name), hint=hint)) from None
    return None if found in ("utf-8", "utf-8-sig") else found


def unmarked_utf(head: bytes) -> str | None:
    r"""The encoding of a text in UTF-16 without byte order mark, which is often valid UTF-8; None for other texts.

    >>> unmarked_utf("one".encode("utf-16-be")), unmarked_utf(b"o\0n\0e\0"), unmarked_utf(b"o\0n\0e")
    ('utf-16-be', 'utf-16-le', None)
    """
    for name in ("utf-16-le", "utf-16-be") if 0 in head and len(head) % 2 == 0 else ():
        text = read_in(head, name)
        if not _CONTROL.search(text) and sum(one < _ALPHABETS for one in text) > _MOST * len(text):
            return name
    return None


def read_in(head: bytes, name: str) -> str:
    """The text in this encoding, whose last character may be cut; empty if beyond ASCII a character is none."""
    try:
        text = codecs.getincrementaldecoder(name)().decode(head)
    except UnicodeDecodeError:
        return ""
    return "" if any(unicodedata.category(one) in _NO_TEXT for one in set(text) if one > "~") else text


def guess(raw: bytes, place: int) -> str:
    """The end of a message about bytes that are not in an encoding: what they may be, and what to do.

    Args:
        raw: bytes of the file.
        place: the byte that is wrong.
    """
    begin = 0 if place < SAMPLE // 2 else raw.find(b"\n", place - SAMPLE // 4, place) + 1 or place - SAMPLE // 4
    sample = raw[begin : begin + SAMPLE]
    text = sample.decode("utf-8", "surrogateescape")
    lost = len(_LOST.findall(text))
    if not lost:
        return _("it is UTF-8: leave --encoding out")
    in_utf8 = len(re.findall("[^\0-\x7f]", text)) - lost
    if in_utf8 >= 4 * lost:
        return _(
            "the bytes around are UTF-8, so the file is damaged or cut there: repair it there, or remove the bytes"
        )
    likely = _likely(sample)
    if 2 * in_utf8 >= lost:
        other = "".join(filter(_LOST.search, text.splitlines(True))).encode("utf-8", "surrogateescape")
        if parts := _likely(other):
            return _(
                "a part of it is UTF-8 and another part {name}, so no encoding reads it all: convert that part alone",
                name=_(NAMES[parts[0][0]]),
            )
    if likely:
        # A word of each reading: the first one that they read in different ways.
        words = max(
            zip(*(_BEYOND.findall(read) for _name, read in likely), strict=False), key=lambda same: len({*same})
        )
        named = _(" or ").join(
            f"{_(NAMES[name])} (“{''.join(filter(str.isprintable, word))}”)"
            for (name, _read), word in zip(likely, words, strict=True)
        )
        options = _(" or ").join(name for name, _read in likely)
        return _("it looks like {names}: give --encoding {encodings}", names=named, encodings=options)
    if len(_CONTROL.findall(text)) * 20 > len(sample):
        return _("it looks like binary data; give a text")
    return _("its encoding is not one that Vitral recognises: save it as UTF-8, or give --encoding NAME")


def _likely(sample: bytes) -> list[tuple[str, str]]:
    """The likeliest encodings, the best first, each with what it reads; none where that is hardly a text."""
    texts = {read_in(sample, name): name for name in reversed(NAMES)}  # each text once
    judged = list[tuple[float, str, str, bool]]()
    for text, name in texts.items():
        others = Counter(text)
        plain = sum(others.pop(character, 0) for character in _PLAIN)
        bits = min(sum(count * usual.get(one, _RARE) for one, count in others.items()) for usual in _usual())
        is_text = bool(others) and bits <= _PLAUSIBLE * (len(sample) - plain)
        judged.append((list(NAMES).index(name) + _ASCII * plain + bits, name, text, is_text))
    least = min((bits for bits, _name, text, _is_text in judged if not text.isascii()), default=0)
    return [(name, text) for bits, name, text, is_text in sorted(judged) if is_text and bits <= least + _LIKELY][:3]


@cache
def _usual() -> list[dict[str, float]]:
    """The bits of the usual characters of each language, capital or small."""
    found: list[dict[str, float]] = []
    for letters in _LANGUAGES:
        first = 3 if letters else 1
        small = {letter: first + log2(1 + rank) for some in (_SIGNS, letters) for rank, letter in enumerate(some)}
        found.append({letter.upper(): bits for letter, bits in small.items()} | small)
    return found
