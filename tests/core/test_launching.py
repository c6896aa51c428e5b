"""What a launcher says to its ranks: read, or refused in one line."""

import os

import pytest

from vitral.core.errors import UsageError
from vitral.core.launching import Launch, launched
from vitral.training.joining import together

WHOLE = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "first", "MASTER_PORT": "29500"}
NAMES = [*WHOLE, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"]
WRONG = [
    *(("WORLD_SIZE", value) for value in ("two", "0", "-1", "2.0")),
    *(("RANK", value) for value in (None, "", "3", "-1", "one")),
    *(("MASTER_PORT", value) for value in (None, "0", "65536", "http")),
    ("MASTER_ADDR", None),
    ("LOCAL_RANK", "x"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("TORCHELASTIC_RESTART_COUNT", "never"),
]


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A launcher that says everything that is needed."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in WHOLE.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_launcher_may_say_little_or_all(whole: pytest.MonkeyPatch) -> None:
    assert launched()
    assert Launch.read() == Launch(1, 3, 0, 1, "first", 29500, 0)
    for name, value in (("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "3"), ("TORCHELASTIC_RESTART_COUNT", "2")):
        whole.setenv(name, value)
    assert Launch.read() == Launch(1, 3, 1, 3, "first", 29500, 2)


@pytest.mark.parametrize("size", [None, "", "1"])
def test_one_process_is_alone(size: str | None, whole: pytest.MonkeyPatch) -> None:
    whole.delenv("WORLD_SIZE")
    if size is not None:
        whole.setenv("WORLD_SIZE", size)
    assert not launched()
    with together() as team:
        assert team.size == 1


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_word_of_the_launcher_is_refused(name: str, value: str | None, whole: pytest.MonkeyPatch) -> None:
    """Where the ranks would come together; nobody trains alone by mistake."""
    if value is None:
        whole.delenv(name)
    else:
        whole.setenv(name, value)
    assert launched()
    with pytest.raises(UsageError, match=name), together():
        pytest.fail("it trains")
    assert os.environ.get(name) == value
