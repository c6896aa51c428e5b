import hashlib
from pathlib import Path

import pytest

from vitral.core.errors import UsageError
from vitral.data import Corpus, CorpusConfig, corpus_names, load_corpus
from vitral.data.sources import SOURCES, Source

HOMER = Source("an epic", "http://127.0.0.1:9/never", ("sing",), ("homer-complete.txt",))


def load(source: str | Path, **options: object) -> Corpus:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "homer", HOMER)
        return load_corpus(CorpusConfig.parse({"source": str(source), **options}))


def refusal(source: str | Path) -> str:
    with pytest.raises(UsageError) as error:
        load(source)
    return str(error.value)


def test_a_file(tmp_path):
    (tmp_path / "my.txt").write_bytes("olá\r\n".encode())
    corpus = load(tmp_path / "my.txt")
    assert (corpus.name, corpus.text, corpus.num_bytes) == ("my.txt", "olá\n", 6)
    assert corpus.sha256 == hashlib.sha256("olá\r\n".encode()).hexdigest()
    assert corpus.notes == ("Newlines were changed to \\n: 1 \\r\\n and 0 lone \\r.",)


def test_a_folder_is_its_text_files_in_order_of_path(tmp_path):
    root = tmp_path / "books"
    (root / "b").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "z.txt").write_bytes(b"last")
    (root / "a.md").write_bytes(b"first")
    (root / "b" / "c.txt").write_bytes(b"inner")
    (root / ".hidden.txt").write_bytes(b"no")
    (root / ".git" / "x.txt").write_bytes(b"no")
    (root / "picture.png").write_bytes(b"\x89PNG\xff")
    (root / "table.bin").write_bytes(b"a\0b")
    (root / "empty.txt").write_bytes(b"")
    corpus = load(root)
    assert (corpus.name, corpus.text, corpus.num_bytes) == ("books", "first\n\ninner\n\nlast", 14)
    assert load(root, separator="<|>").text == "first<|>inner<|>last"
    assert corpus.notes == (
        "3 files were joined with '\\n\\n' between them.",
        "3 files were skipped, empty or not UTF-8 text: empty.txt, picture.png, table.bin.",
    )
    listing = [("a.md", b"first"), ("b/c.txt", b"inner"), ("z.txt", b"last")]
    lines = [f"{hashlib.sha256(raw).hexdigest()}  {name}\n" for name, raw in listing]
    assert corpus.sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_a_text_file_in_a_folder_must_be_utf8(tmp_path):
    (tmp_path / "good.txt").write_bytes(b"good")
    (tmp_path / "bad.TXT").write_bytes(b"ab\xff")
    message = refusal(tmp_path)
    assert "bad.TXT: not UTF-8 at byte 2" in message


def test_bad_sources_are_refused_in_one_line(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "bare").mkdir()
    assert "empty.txt: empty" in refusal(tmp_path / "empty.txt")
    assert "no UTF-8 text in this folder (0 files skipped)" in refusal(tmp_path / "bare")
    assert "corpus 'homr': no such name, file or folder; did you mean 'homer'?" in refusal("homr")
    assert "did you mean 'sample'?" in refusal("smaple")
    assert "no such name, file or folder" in refusal("a\nb")
    assert "no such name, file or folder" in refusal("a\0b")
    assert "no such name, file or folder" in refusal("~nobody-of-this-name/x")
    assert "no such name, file or folder" in refusal("x" * 5000)


def test_a_name_is_looked_for_in_the_folder_of_corpora_first(tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("VITRAL_CORPORA", str(own))
    for name in ("mine", "homer", "sample", "sample-pt"):
        (own / f"{name}.txt").write_bytes(name.upper().encode())
    assert load("mine").text == "MINE"
    assert load("mine").notes == (f"Read from {own / 'mine.txt'}.",)
    assert load("homer").text == "HOMER"
    assert load("sample").text == "SAMPLE"
    assert load("sample-pt").text == "SAMPLE-PT"
    (own / "homer-complete.txt").write_bytes(b"COMPLETE")
    assert load("homer").text == "COMPLETE"
    assert corpus_names()["mine"].endswith("mine.txt")
    assert "did you mean 'mine'?" in refusal("minee")


def test_a_name_wins_over_a_file_and_a_path_does_not(tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "homer.txt").write_bytes(b"by name")
    (tmp_path / "homer").write_bytes(b"by path")
    monkeypatch.setenv("VITRAL_CORPORA", str(own))
    monkeypatch.chdir(tmp_path)
    assert load("homer").text == "by name"
    assert load("./homer").text == "by path"


@pytest.mark.merge
def test_the_source_of_python_is_a_large_text():
    corpus = load("python")
    assert corpus.num_bytes > 5_000_000
    assert isinstance(corpus.text, str)
    assert "def namedtuple(" in corpus.text
    assert "site-packages" not in " ".join(corpus.notes)


def test_a_collection_is_its_texts_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAL_CORPORA", str(tmp_path))
    (tmp_path / "dom-casmurro.txt").write_text("Capitu\n", encoding="utf-8", newline="\n")
    (tmp_path / "bras-cubas.txt").write_text("emplasto\n", encoding="utf-8", newline="\n")
    both = load_corpus(CorpusConfig(source="machado"))
    assert both.text == "Capitu\n\n\nemplasto\n"
    assert both.num_bytes == 16
    assert "machado" in corpus_names()
    (tmp_path / "machado.txt").write_text("contos", encoding="utf-8", newline="\n")
    assert load_corpus(CorpusConfig(source="machado")).text == "contos"
