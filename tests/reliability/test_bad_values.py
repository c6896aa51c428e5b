"""One table of bad values at two doors, the library's and the command line's: defined or refused in one line."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from tests.reliability.conftest import Tally, files_of, scaled
from tests.reliability.damages import is_one_line
from vitral import Run, configure
from vitral.app.terminal import run as command
from vitral.core.errors import UsageError, VitralError
from vitral.runs import RunFolder

DIGITS = "9" * 5000
VALUES: dict[str, list[Any]] = {
    "temperature": [0, -1, 1e-40, math.nan, math.inf, 1e308, "x", True, DIGITS],
    "top_k": [-1, 0, 1, 12, 13, 14, 10**9, 1.5, DIGITS],
    "top_p": [-1, 0, 1e-12, 1, 1.1, math.nan],
    "min_p": [-1, 0, 1, 1.1, math.inf],
    "repetition_penalty": [-1, 0, 1e-320, 1, 1e308, math.nan],
    "max_tokens": [-5, 0, 1, 12, 13, 40, 1.5, "x", "-" + DIGITS],
    "seed": [-1, 0, 2**63, 1.5, DIGITS],
    "num_beams": [-1, 0, 12, 200, True],
    "length_penalty": [-1.0, 0.0, 1e9, math.nan],
    "stop": ["", "a", "\0", "\n", "the cat", "\ud800"],
    "prompt": ["", "the cat saw a", "a" * 110, "a" * 1_000_000, "\0", "\ud800", "<PAD>", "é", "\x1b[2J"],
}
QUIETLY = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@pytest.fixture(scope="module")
def run(straight: RunFolder) -> Run:
    """The tiny run, loaded."""
    return Run(straight.path)


def one_line(error: BaseException) -> str:
    """An error meant for users: one line, nothing that steers a terminal."""
    text = str(error)
    assert isinstance(error, VitralError), repr(error)[:300]
    assert is_one_line(text), text[:300]
    assert len(text) < 1000, text[:300]
    return text


def asked(run: Run, name: str, value: Any) -> str | None:
    """Through the library; gives the complaint, None where it was accepted."""
    try:
        if name == "length_penalty":
            run.generate("the", max_tokens=3, num_beams=2, length_penalty=value)
        elif name == "prompt":
            run.generate(value, max_tokens=3)
        else:
            given: Any = {"max_tokens": 3, name: [value] if name == "stop" else value}
            run.generate("the", **given)
    except UsageError as error:
        return one_line(error)
    except TypeCheckError:
        return f"{name}: of another type"  # what the tests' own checks of annotations refuse before we can
    return None


def typed(capsys: pytest.CaptureFixture[str], path: Path, name: str, value: Any) -> tuple[int, str]:
    """Through the command line; gives the exit code and what it said on stderr."""
    given_ = f"{value}" if not isinstance(value, bool) else str(value).lower()
    option = f"--{name.removeprefix('num_').replace('_', '-')}={given_}"
    beams = ["--beams=2"] if name == "length_penalty" else []
    short = [] if name == "max_tokens" else ["--max-tokens=3"]
    capsys.readouterr()
    try:
        code = command(["generate", str(path), *short, *beams, option])
    except UnicodeEncodeError:  # a terminal could not have typed it
        return 2, "vitral: a lone surrogate\n"
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err
    assert "\x1b" not in printed.out + printed.err
    return code, printed.err


@pytest.mark.parametrize("name", VALUES)
def test_at_both_doors(name: str, run: Run, capsys: pytest.CaptureFixture[str], tally: Tally) -> None:
    before = files_of(run.path)
    for value in VALUES[name]:
        complaint = asked(run, name, value)
        if complaint is not None and name != "prompt":
            assert any(word in complaint for word in (name, "sampling", "token", "surrogate", "character")), complaint
        code, said = typed(capsys, run.path, name, value)
        assert code in (0, 2), (value, code, said)
        if code == 2:
            assert said.count("\n") == 1, said[:300]
            assert said.startswith("vitral: ")
        # What is a number to the one door is one to the other; a word like "x" or "true" is only typed at the second.
        if not isinstance(value, str | bool) or name in ("prompt", "stop"):
            assert (complaint is None) == (code == 0), (complaint, said)
    assert files_of(run.path) == before
    tally("bad values at the library's and the command line's door", 2 * len(VALUES[name]))


KEYS = {
    "model": ["context_length", "d_model", "num_layers", "num_heads", "d_ff", "dropout", "norm", "positions", "x"],
    "training": ["steps", "batch_size", "clip_norm", "evaluate_every", "dtype", "minutes", "device", "optimizer", "y"],
    "corpus": ["source", "tokenizer", "split", "newlines", "separator", "z"],
    "seed": [],
}
WILD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30, math.nan, math.inf, 1e-320, 1e308]),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


@settings(max_examples=scaled(40, 5000), suppress_health_check=QUIETLY)
@given(st.sampled_from([(table, key) for table, keys in KEYS.items() for key in keys or [""]]), WILD)
def test_any_configuration_is_read_or_refused(tally: Tally, place: tuple[str, str], value: Any) -> None:
    table, key = place
    tally("configurations, drawn at random", 1)
    try:
        configure("shakespeare", overrides=[{table: {key: value} if key else value}])
    except UsageError as error:
        one_line(error)
