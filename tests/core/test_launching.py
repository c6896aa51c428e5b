"""What a launcher says to its ranks."""

import pytest

from vitral.core.launching import launch_name, launched


@pytest.mark.parametrize(("size", "several"), [(None, False), ("", False), ("1", False), ("2", True), ("two", True)])
def test_one_process_is_alone(size: str | None, several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody trains alone by mistake."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    assert launched() == several


def test_all_starts_by_one_launcher_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert launch_name() == ""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    names = set[str]()
    for attempt in range(2):
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", f"/tmp/torchelastic_a/none_b/attempt_{attempt}/0/error.json")
        names.add(launch_name())
    assert names == {"/tmp/torchelastic_a/none_b/"}
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    assert launch_name() == "7"
