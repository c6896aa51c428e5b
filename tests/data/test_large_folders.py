"""A large folder is read from the disk as a long file is: the same text, in less memory than it has bytes."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vitral.data import CorpusConfig, corpora, load_corpus, texts
from vitral.data.long_texts import pieces

MARKS = ("*** START OF THE BOOK\n", "*** END OF THE BOOK\n", "*** START OF TH", "\n", "\r", "\ufeff", "é😀", "a line")
WRITTEN = st.lists(st.sampled_from(MARKS), max_size=12).map("".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(WRITTEN, max_size=4), st.booleans(), st.sampled_from([0, 40, 400]), st.sampled_from(["lf", "keep"]))
def test_licences_binary_and_empty_files_are_treated_alike(
    tmp_path: Path, contents: list[str], has_binary: bool, most: int, newlines: str
) -> None:
    folder = tmp_path / "books"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, content in enumerate([*contents, "the end"]):
        (folder / f"{number}.txt").write_bytes(content.encode())
    if has_binary:
        (folder / "image.bin").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50))
        (folder / "other").write_bytes(b"one\0two" * 9)
    config = CorpusConfig.parse({"source": str(folder), "newlines": newlines})
    expected = load_corpus(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "LONG", most)
        patch.setattr(texts, "STREAMED", 0)
        patch.setattr(texts, "PIECE", 11)
        found = load_corpus(config)
    assert isinstance(found.text, str) is (found.num_bytes <= most)
    assert "".join(pieces(found.text)) == expected.text
    assert replace(found, text="") == replace(expected, text="")


MEASURE = """
import sys, threading
from pathlib import Path
from vitral.data import CorpusConfig, corpora, load_corpus, prepare, texts

def anonymous():
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024

texts.LONG = corpora.LONG = 1 << 24
before, peak, done = anonymous(), 0.0, threading.Event()

def watch():
    global peak  # the most that was seen
    while not done.wait(0.001):
        peak = max(peak, anonymous())

threading.Thread(target=watch, daemon=True).start()
config = CorpusConfig.parse({"source": sys.argv[1]})
corpus = load_corpus(config)
prepare(config, corpus=corpus, cache=Path(sys.argv[2]))
done.set()
print(len(corpus.text), peak - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what memory is anonymous")
def test_a_large_folder_needs_less_memory_than_it_has_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    line = "Something “is” written here, and it goes on and on.\n".encode()
    sizes = [100, *(2 for _ in range(25))]
    for number, megabytes in enumerate(sizes):
        (folder / f"{number:02d}.txt").write_bytes(line * (megabytes * 1_000_000 // len(line)))
    source = str(Path(corpora.__file__).parents[2])  # of this very package
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    command = [sys.executable, "-c", MEASURE, str(folder), str(tmp_path / "cache")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    characters, peak = map(float, ran.stdout.split())
    assert characters > 0.9e6 * sum(sizes)
    assert peak < sum(sizes)
