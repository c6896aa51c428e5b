"""The library, compiled from the source of this checkout."""

from pathlib import Path

import pytest

from vitral.model.native import build, library


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library in a folder of the tests; skipped without a compiler."""
    if build.compiler() is None:
        pytest.skip("no C compiler is installed")
    folder = tmp_path_factory.mktemp("native")
    assert build.build(folder) is None
    return folder / build.LIBRARY


@pytest.fixture
def used(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library is used in this test, whatever lies beside the source."""
    monkeypatch.delenv(build.SWITCH, raising=False)
    monkeypatch.setattr(library, "PATH", compiled)
    assert library.native().library is not None
    return compiled
