"""The library is optional: without a compiler, or with a stale library, Vitral generates with PyTorch."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from variants import TOKENIZER, made

from vitral.decoding import Sampling, generate
from vitral.model.native import build, library, native, native_step


def text() -> str:
    return generate(made("pre"), TOKENIZER, ["ab"], max_tokens=30, sampling=Sampling())[0].text


@pytest.mark.parametrize("hidden", [{"PATH": "/nonexistent"}, {"CC": "false"}], ids=["no compiler", "a failing one"])
def test_a_failing_build_says_why_and_changes_nothing(
    hidden: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    for name, value in hidden.items():
        monkeypatch.setenv(name, value)
    (tmp_path / build.LIBRARY).write_text("an older one", encoding="utf-8")
    assert build.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [build.LIBRARY]
    assert (tmp_path / build.LIBRARY).read_text(encoding="utf-8") == "an older one"


def test_the_text_is_the_same_without_the_library(used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = text()
    (tmp_path / "damaged").write_bytes(b"no library")
    for name in ("missing", "damaged"):
        monkeypatch.setattr(library, "PATH", tmp_path / name)
        assert isinstance(native_step(made("pre")), str)
        assert text() == expected


def test_a_library_of_another_source_is_not_used(used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(used, tmp_path)
    monkeypatch.setattr(library, "source_hash", lambda: "0" * 64)
    monkeypatch.setattr(library, "PATH", tmp_path / build.LIBRARY)
    assert "another version" in native().detail
    assert isinstance(native_step(made("pre")), str)


def test_the_command_needs_the_standard_library_only(tmp_path: Path) -> None:
    """The build hook runs it where neither Vitral nor PyTorch is installed."""
    command = [sys.executable, "-I", "-S", str(build.SOURCE.with_name("build.py")), "--help"]
    assert subprocess.run(command, capture_output=True, check=False, cwd=tmp_path).returncode == 0
