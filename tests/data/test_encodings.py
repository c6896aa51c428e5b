"""A text in any encoding is read with `corpus.encoding`; without it, it is refused with a remedy, and never guessed."""

import re
from pathlib import Path

import pytest

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, prepare
from vitral.data.texts import decode_document

JAPANESE = "雨の朝、少女は駅へ歩いた。傘は赤く、靴は古かった。駅には誰もいない。時計だけが動いている。\n"
CHINESE = "清晨下着小雨，女孩慢慢走向车站。她的伞是红色的，鞋子却很旧。车站里没有人，只有时钟还在走。\n"
TAIWANESE = "清晨下著小雨，女孩慢慢走向車站。她的傘是紅色的，鞋子卻很舊。車站裡沒有人，只有時鐘還在走。\n"
KOREAN = "비가 오는 아침에 소녀는 역으로 걸어갔다. 우산은 빨갛고 신발은 낡았다. 역에는 아무도 없었다.\n"
RUSSIAN = "Утром шёл дождь, и девочка медленно шла к станции. Зонт был красный, а туфли старые. Там никого не было.\n"
PORTUGUESE = "A manhã chuvosa começou e a menina não saiu da estação; o relógio é antigo e ninguém está lá.\n"
ENGLISH = "In the morning it rained, and the girl walked to the station.\n"

KINDS = [
    *((PORTUGUESE, name) for name in ("cp1252", "mac_roman", "cp850", "iso8859_15")),
    *((RUSSIAN, name) for name in ("koi8_r", "cp1251", "cp866", "utf-16", "utf-16-le", "utf-16-be")),
    *((ENGLISH, name) for name in ("utf-16-le", "utf-16-be", "utf-32")),
    (JAPANESE, "shift_jis"),
    (CHINESE, "gb18030"),
    (TAIWANESE, "big5"),
    (KOREAN, "euc_kr"),
]


def refusal(raw: bytes, encoding: str | None = None) -> str:
    with pytest.raises(UsageError) as error:
        decode_document(raw, "my.txt", CorpusConfig(encoding=encoding))
    message = str(error.value)
    assert message.startswith("my.txt: ")
    return message


@pytest.mark.parametrize(("text", "encoding"), KINDS)
def test_one_of_the_encodings_named_reads_the_text(text: str, encoding: str) -> None:
    raw = (text * 2).encode(encoding)
    message = refusal(raw)
    named = re.findall(r"(\w+) \(“", message) or message.partition("--encoding ")[2].split(" or ")
    assert any(raw.decode(name) == text * 2 for name in named)
    assert decode_document(raw, "my.txt", CorpusConfig(encoding=encoding)).text == text * 2


@pytest.mark.parametrize("tail", ["cp1252", "mac_roman", "cp850"])
def test_no_encoding_is_given_for_a_text_in_two(tail: str) -> None:
    for raw in (
        PORTUGUESE.encode() * 7 + PORTUGUESE.encode(tail) * 9,
        PORTUGUESE.encode(tail) * 9 + PORTUGUESE.encode() * 7,
    ):
        message = refusal(raw)
        assert "UTF-8" in message
        assert "--encoding" not in message


def test_a_wrong_encoding_is_refused_with_byte_and_line() -> None:
    raw = b"one\ntwo \x81\x20"
    assert "not SHIFT_JIS at byte 8 (0x81, line 2)" in refusal(raw, encoding="shift_jis")
    assert "leave --encoding out" in refusal(JAPANESE.encode(), encoding="euc_jp")
    assert "leave --encoding out" in refusal(b"\xef\xbb\xbfa", encoding="cp1252")
    assert "--encoding utf-16" in refusal("a".encode("utf-16"), encoding="cp1252")
    assert "utf-16-be" in refusal("one".encode("utf-16-be") + b"\0.", encoding="utf-16")
    assert "utf-16-le" in refusal(b"\xfe\xff\0a", encoding="utf-16-le").lower()


def test_a_damaged_utf8_text_is_not_taken_for_another_encoding() -> None:
    cut = JAPANESE.encode()[:-2]
    assert "--encoding" not in refusal(cut)
    assert "--encoding" not in refusal(JAPANESE.encode() + b"\xff" + JAPANESE.encode())


@pytest.mark.parametrize("encoding", [None, "latin_1"])
def test_what_begins_with_a_nul_is_no_text(encoding: str | None) -> None:
    for raw in (b"a\0b", b"x.txt".ljust(257, b"\0") + b"ustar", b"\xd0\0" * 9):
        assert "no plain text" in refusal(raw, encoding)


@pytest.mark.parametrize(("name", "hint"), [("latn1", "'latin_1'"), ("rot13", ""), ("base64", "")])
def test_what_is_no_encoding_is_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"encoding: '{name}'.*{hint}"):
        CorpusConfig.parse({"encoding": name}, "corpus")


def test_the_encoding_is_noted_and_changes_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes((PORTUGUESE * 300).encode("cp1252"))
    config = CorpusConfig.parse({"source": str(tmp_path / "x.txt"), "encoding": "cp1252"})
    one, other = prepare(config), prepare(config.model_copy(update={"encoding": "cp1250"}))
    assert any("cp1252" in note for note in one.notes)
    assert one.text.sha256 == other.text.sha256
    assert one.fingerprint != other.fingerprint
