"""Streams that fail, reporters that fail, and errors that are not ours: one line each, with an exit code."""

import codecs
import errno
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.conftest import SETTINGS
from vitral.app.progress import Harmless
from vitral.app.terminal import streams
from vitral.app.terminal.streams import OutputLost

STEP = {"event": "step", "step": 1}


class Fails(io.RawIOBase):
    """A stream that takes so many writes, and then fails in some way each time."""

    def __init__(self, writes: int, error: Exception) -> None:
        self.writes, self.error, self.taken, self.tried = writes, error, b"", 0

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.tried += 1
        if self.tried > self.writes:
            raise self.error
        self.taken += bytes(data)
        return len(data)


def guarded(raw: io.RawIOBase, encoding: str = "utf-8") -> tuple[streams._Sink, io.TextIOWrapper]:
    """A guarded standard output on top of the raw stream."""
    plain = io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, line_buffering=True)
    sink = streams._Sink(plain, needed=True)
    codecs.register_error("vitral-replace", sink.replacement)
    return sink, streams._text(sink, "vitral-replace")


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Fails, io.TextIOWrapper]]:
    """A guarded standard output that takes one line; its disk is full from the second on."""
    raw = Fails(1, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    sink, stream = guarded(raw)
    monkeypatch.setattr(streams, "_output", sink)
    yield raw, stream
    stream.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE, None])
def test_the_first_failure_ends_the_command_and_later_ones_are_silent(number: int | None) -> None:
    raw = Fails(2, ValueError("gone") if number is None else OSError(number, os.strerror(number)))
    _sink, stream = guarded(raw)
    print("one", file=stream)
    print("two", file=stream)
    with pytest.raises(OutputLost) as lost:
        print("three", file=stream)
    assert "\n" not in str(lost.value)
    assert (lost.value.exit_code, lost.value.reader_left) == (4, number == errno.EPIPE)
    for _ in range(3):
        print("four", file=stream)
        stream.flush()
    assert (raw.taken, raw.tried) == (b"one\ntwo\n", 3)
    stream.close()


def test_an_optional_output_fails_silently_and_the_news_comes_once(output, capsys: pytest.CaptureFixture[str]) -> None:
    raw, stream = output
    streams._output.needed = False  # pyright: ignore[reportOptionalMemberAccess]
    for _ in range(3):
        print("a line", file=stream)
    streams.say_if_lost()
    streams.say_if_lost()
    assert capsys.readouterr().err.count("No space left") == 1
    assert raw.taken == b"a line\n"


def test_what_does_not_block_is_written_whole() -> None:
    """A terminal that another program left in this mode would lose what does not fit."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    sink, stream = guarded(io.FileIO(writing, "w", closefd=False))
    read: list[bytes] = []

    def drain() -> None:
        while piece := os.read(reading, 65536):
            read.append(piece)

    reader = threading.Thread(target=drain)
    reader.start()
    text = "".join(f"{number}\n" for number in range(100_000))
    stream.write(text)
    stream.flush()
    os.close(writing)
    reader.join()
    os.close(reading)
    assert b"".join(read).decode() == text
    assert sink.lost is None


def test_a_character_that_the_encoding_lacks_is_remembered() -> None:
    raw = Fails(9, OSError())
    sink, stream = guarded(raw, "ascii")
    print("plain", file=stream)
    assert not sink.replaced
    print("≤ 3", file=stream)
    assert sink.replaced
    assert raw.taken == b"plain\n? 3\n"


def test_a_display_that_fails_is_said_once() -> None:
    called, said = list[str](), list[str]()

    def report(event) -> None:
        called.append(event["event"])
        raise OverflowError("too wide")

    harmless = Harmless(report, said.append, "the picture failed ({kind}: {error})")
    for _ in range(3):
        harmless(STEP)
    assert called == ["step"]
    assert said == ["the picture failed (OverflowError: too wide)"]


@pytest.mark.merge
def test_tensorboard_never_ends_a_run(vitral, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.tensorboard import SummaryWriter

    def fail(*given: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SummaryWriter, "add_scalar", fail)
    told = vitral("train", "sample", "--out", "watched", "--tensorboard", *SETTINGS)
    assert told.code == 0
    assert told.err.count("\n") == 1
    assert "TensorBoard" in told.err
    assert (tmp_path / "watched" / "report" / "run.html").is_file()


ALLOCATION = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9999999999 bytes."
FAILURES = [
    (OSError(errno.EMFILE, "Too many open files", "some/file"), 4),
    (OSError("a socket"), 4),
    (BrokenPipeError(errno.EPIPE, "Broken pipe"), 4),
    (ValueError("two\nlines \x1b[31m"), 70),
    (UnicodeEncodeError("ascii", "é", 0, 1, "no"), 70),
    (RecursionError("maximum recursion depth exceeded"), 70),
    (MemoryError(), 2),
    (RuntimeError(ALLOCATION), 2),
    (TypeError("9" * 5000), 70),
    (KeyboardInterrupt("stopped; the same command goes on"), 130),
    (EOFError(), 70),
]


@pytest.mark.parametrize(("error", "code"), FAILURES, ids=lambda value: type(value).__name__)
def test_any_error_is_one_line(vitral, error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: object) -> None:
        raise error

    monkeypatch.setattr("vitral.app.list_texts", fail)
    for wanted in ("", "1"):
        monkeypatch.setenv("VITRAL_TRACEBACK", wanted)
        outcome = vitral("list", "texts")
        line = outcome.err.splitlines()[-1]
        assert outcome.code == code
        assert line.startswith("vitral: ")
        assert line.isprintable()
        assert len(line) < 600
        traced = wanted == "1" and code != 130
        assert ("Traceback" in outcome.err, outcome.err.count("\n") == 1) == (traced, not traced)
