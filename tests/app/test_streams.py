"""Streams that fail, reporters that fail, and errors that are not ours: one line each, with an exit code."""

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


def guarded(descriptor: int, encoding: str = "utf-8") -> tuple[streams._Stream, io.TextIOWrapper]:
    """A guarded standard output of lines."""
    stream, own = (
        streams._Stream(descriptor, needed=True),
        io.TextIOWrapper(io.BytesIO(), encoding, line_buffering=True),
    )
    return stream, streams._text(stream, own, "replace")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.TextIOWrapper]:
    """A guarded standard output on a full disk."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    stream, text = guarded(descriptor)
    monkeypatch.setattr(streams, "_output", stream)
    yield text
    text.close()
    os.close(descriptor)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.TextIOWrapper]:
    """A guarded standard output whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    text = guarded(writing)[1]
    yield text
    text.close()
    os.close(writing)


@pytest.mark.parametrize("name", ["full", "cut"])
def test_the_first_failure_ends_the_command_and_later_ones_are_silent(
    name: str, request: pytest.FixtureRequest
) -> None:
    stream = request.getfixturevalue(name)
    with pytest.raises(OutputLost) as lost:
        print("one", file=stream)
    assert "\n" not in str(lost.value)
    assert (lost.value.exit_code, lost.value.reader_left) == (4, name == "cut")
    for _ in range(3):
        print("two", file=stream)
        stream.flush()


def test_an_optional_output_fails_silently_and_the_news_comes_once(
    full: io.TextIOWrapper, capsys: pytest.CaptureFixture[str]
) -> None:
    streams._output.needed = False  # pyright: ignore[reportOptionalMemberAccess]
    for _ in range(3):
        print("a line", file=full)
    streams.say_if_lost()
    streams.say_if_lost()
    assert capsys.readouterr().err.count("No space left") == 1


def test_what_does_not_block_is_written_whole() -> None:
    """A terminal that another program left in this mode would lose what does not fit."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    below, stream = guarded(writing)
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
    assert below.lost is None


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
    assert list((tmp_path / "watched" / "tensorboard").glob("events.out*"))


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

    monkeypatch.setattr("vitral.list_texts", fail)
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
