import pytest

from vitral.core.errors import StorageError, UsageError
from vitral.data import CorpusConfig, load_corpus
from vitral.data.sources import SOURCES, Source

TEXT = b"\xef\xbb\xbfLicence\r\n*** START OF THE EBOOK ***\r\nSing, goddess\r\n*** END OF THE EBOOK ***\r\n"
HOLDS = ("*** START OF TH", "*** END OF TH")


def load(url, name="homer"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, name, Source("an epic", url, HOLDS))
        return load_corpus(CorpusConfig(source=name))


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_named_text_is_downloaded_once(serve, cache, capfd):
    url, asked = serve(200, TEXT)
    first, second = load(url), load(url)
    assert first == second
    assert (first.name, first.text, first.num_bytes) == ("homer", "Sing, goddess\n", len(TEXT))
    assert asked == ["/text.txt"]
    assert capfd.readouterr() == ("", "")
    assert files(cache) == ["homer.txt"]
    assert len(first.notes) == 4


@pytest.mark.parametrize(
    ("status", "body", "promised"),
    [
        (404, b"not here", None),
        (200, TEXT, len(TEXT) + 7),
        (200, b"<html>please log in</html>", None),
        (200, TEXT[:60], None),
    ],
)
def test_a_failed_download_says_what_to_put_where_and_leaves_nothing(serve, cache, status, body, promised):
    url, _ = serve(status, body, promised)
    with pytest.raises(UsageError) as error:
        load(url)
    message = str(error.value)
    assert url in message
    assert "save it as homer.txt in a folder and set VITRAL_CORPORA to that folder" in message
    assert files(cache) == []


@pytest.mark.parametrize("content", [b"my diary", TEXT[:60]])
def test_a_file_that_was_there_before_is_neither_used_nor_removed(serve, cache, content):
    url, asked = serve(200, TEXT)
    (cache / "corpora").mkdir(parents=True)
    (cache / "corpora" / "homer.txt").write_bytes(content)
    with pytest.raises(UsageError, match=r"homer\.txt"):
        load(url)
    assert (cache / "corpora" / "homer.txt").read_bytes() == content
    assert asked == []


def test_a_cache_that_cannot_be_written_is_the_disks_fault(serve, cache):
    url, _ = serve(200, TEXT)
    cache.write_bytes(b"a file where the folder should be")
    with pytest.raises(StorageError, match=r"homer\.txt: cannot be written"):
        load(url)
