"""The library, compiled from the source of this checkout."""

from pathlib import Path

import pytest

from tests.conftest import Once
from vitral.model.native import build, library

LONG = (
    *("pre", "rmsnorm", "lstm", "swiglu", "bidirectional", "window", "prefix", "adaptive", "rotary"),
    "relative, both ways",
)
"""Variants that are tried as wide as `made_wide` too: whole vectors and a rest, and more positions than a block."""


@pytest.fixture(scope="session")
def compiled(once: Once) -> Path:
    """The library in a folder of the tests; skipped without a compiler."""
    if build.compiler() is None:
        pytest.skip("no C compiler is installed")

    def make(folder: Path) -> None:
        folder.mkdir()
        assert build.build(folder) is None

    return once("native", make) / build.LIBRARY


@pytest.fixture
def used(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library is used in this test, whatever lies beside the source."""
    monkeypatch.delenv(build.SWITCH, raising=False)
    monkeypatch.setattr(library, "PATH", compiled)
    assert library.native().library is not None
    return compiled
