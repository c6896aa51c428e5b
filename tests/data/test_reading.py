import pytest

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, load_corpus
from vitral.data.texts import decode_document, strip_licence

GUTENBERG = "Title\n\n*** START OF THIS PROJECT GUTENBERG EBOOK X ***\nthe\nwork\n*** END OF THE PROJECT\nX ***\nend\n"


def read(path):
    return load_corpus(CorpusConfig(source=str(path)))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b"a", "a"),
        (b"\xef\xbb\xbfa", "a"),
        (b"a\xef\xbb\xbf", "a\ufeff"),
        (b"\xef\xbb\xbf\xef\xbb\xbf", "\ufeff"),
        (b"a\r\nb\rc\nd\r\r\n", "a\nb\nc\nd\n\n"),
        (b"\x01\x1b", "\x01\x1b"),
        ("a\u2028b\x85c\x0bd".encode(), "a\u2028b\x85c\x0bd"),
    ],
)
def test_policy(raw, text):
    assert decode_document(raw, "here").text == text


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"ab\nc\xe9d", "my.txt: not UTF-8 at byte 4 (0xe9, line 2)"),
        (b"\xef\xbb\xbfa\xff", "not UTF-8 at byte 4 (0xff, line 1)"),
        (b"ok\xe2\x82", "not UTF-8 at byte 2"),
        ("a".encode("utf-16"), "this is UTF-16, not UTF-8"),
        (b"\xfe\xff\x00a", "this is UTF-16, not UTF-8"),
        ("a".encode("utf-32"), "this is UTF-32, not UTF-8"),
        (b"\x00\x00\xfe\xff\x00\x00\x00a", "this is UTF-32, not UTF-8"),
    ],
)
def test_what_is_not_utf8_is_refused_with_its_place(raw, message):
    with pytest.raises(UsageError) as error:
        decode_document(raw, "my.txt")
    assert message in str(error.value)


def test_licence_is_stripped_exactly_and_counted():
    document = decode_document(GUTENBERG.encode(), "here")
    assert document.text == "the\nwork\n"
    assert document.changes["licence"] == len(GUTENBERG) - len("the\nwork\n")


@pytest.mark.parametrize(
    "text",
    [
        "no markers",
        "*** START OF THE EBOOK ***\nonly one",
        "only one\n*** END OF THE EBOOK ***\n",
        "*** END OF THE EBOOK ***\nwrong order\n*** START OF THE EBOOK ***\n",
        "not at the *** START OF THE\nline *** END OF THE\n",
    ],
)
def test_a_text_without_both_markers_is_kept_whole(text):
    assert strip_licence(text) == text


def test_several_books_in_one_file_are_all_kept():
    book = "licence\n*** START OF THE EBOOK ***\n{}\n*** END OF THE EBOOK ***\nlicence\n"
    whole = "".join(book.format(name) for name in ("one", "two", "three"))
    assert strip_licence(whole) == "one\ntwo\nthree\n"
    cut = whole[whole.index("ne\n") : whole.rindex("ee\n")]
    assert strip_licence(cut) == "ne\ntwo\nthr"


def test_a_file_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_bytes(b"secret")

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(UsageError, match=r"mine.txt: cannot be read \(Permission denied\)"):
        read(tmp_path / "mine.txt")
