"""The library is optional: without a compiler, or with a stale library, Vitral generates with PyTorch."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from variants import TOKENIZER, made

from vitral.decoding import Sampling, generate
from vitral.model.native import build, library, native, native_step

ROOT = Path(__file__).parents[2]
HIDDEN = {
    "no compiler": {"PATH": "/nonexistent"},
    "a failing one": {"CC": "false"},
    "turned off": {"VITRAL_NATIVE": "0"},
}


def text() -> str:
    return generate(made("pre"), TOKENIZER, ["ab"], max_tokens=30, sampling=Sampling())[0].text


def wheel(folder: Path, root: Path = ROOT) -> zipfile.ZipFile:
    built = next(WheelBuilder(str(root)).build(directory=str(folder), versions=["standard"]))
    return zipfile.ZipFile(built)


def prepare_editable(root: Path) -> Path:
    """Run the hook as an editable installation of this folder does; the place of its library."""
    data: dict[str, Any] = {"force_include": {}}
    for hook in WheelBuilder(str(root)).get_build_hooks(str(root)).values():
        hook.initialize("editable", data)
        hook.finalize("editable", data, "")
    assert data == {"force_include": {}}  # nothing goes into the wheel
    return root / "src" / "vitral" / "model" / "native" / build.LIBRARY


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the sources, which has no library, whatever lies beside the source."""
    folder = tmp_path_factory.mktemp("sdist")
    built = next(SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
    with tarfile.open(built) as archive:
        assert not [name for name in archive.getnames() if name.endswith(".so")]
    return Path(built)


@pytest.fixture
def sources(sdist: Path, tmp_path: Path) -> Path:
    """The unpacked archive."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    return next((tmp_path / "sources").iterdir())


def hide(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.delenv("CC", raising=False)
    for name, value in HIDDEN[how].items():
        monkeypatch.setenv(name, value)


def test_the_wheel_has_the_library(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(build.SWITCH, raising=False)
    made_wheel = wheel(tmp_path)
    assert "-py3-none-" in str(made_wheel.filename)
    assert not str(made_wheel.filename).endswith("-any.whl")
    (tmp_path / build.LIBRARY).write_bytes(made_wheel.read(f"vitral/model/native/{build.LIBRARY}"))
    monkeypatch.setattr(library, "PATH", tmp_path / build.LIBRARY)
    assert native().library is not None


@pytest.mark.parametrize("how", HIDDEN)
def test_without_a_compiler_everything_installs(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, how)
    plain = wheel(tmp_path)
    assert str(plain.filename).endswith("-py3-none-any.whl")
    assert not [name for name in plain.namelist() if name.endswith(".so")]


@pytest.mark.parametrize("how", ["no compiler", "a failing one"])
def test_a_failing_build_says_why_and_changes_nothing(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, how)
    (tmp_path / build.LIBRARY).write_text("an older one", encoding="utf-8")
    assert build.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [build.LIBRARY]
    assert (tmp_path / build.LIBRARY).read_text(encoding="utf-8") == "an older one"


def test_the_text_is_the_same_without_the_library(used: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = text()
    monkeypatch.setattr(library, "PATH", tmp_path / build.LIBRARY)
    assert isinstance(native_step(made("pre")), str)
    assert text() == expected
    (tmp_path / build.LIBRARY).write_bytes(b"no library")
    library._opened.cache_clear()
    assert native().library is None
    assert text() == expected


def test_a_library_of_another_source_is_not_used(
    compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "source_hash", lambda: "0" * 64)
    assert build.build(tmp_path) is None
    monkeypatch.undo()
    monkeypatch.delenv(build.SWITCH, raising=False)
    monkeypatch.setattr(library, "PATH", tmp_path / build.LIBRARY)
    assert native().library is None
    assert native().is_stale
    assert isinstance(native_step(made("pre")), str)


def test_the_command_needs_the_standard_library_only(tmp_path: Path) -> None:
    """The build hook runs it where neither Vitral nor PyTorch is installed."""
    command = [sys.executable, "-I", "-S", str(build.SOURCE.with_name("build.py")), "--help"]
    assert subprocess.run(command, capture_output=True, check=False, cwd=tmp_path).returncode == 0


def test_the_archive_of_the_sources_makes_the_wheel(
    compiled: Path, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(build.SWITCH, raising=False)
    assert not str(wheel(tmp_path, sources).filename).endswith("-any.whl")
    hide(monkeypatch, "no compiler")
    assert str(wheel(tmp_path, sources).filename).endswith("-any.whl")


def test_an_editable_installation_has_the_library_beside_its_source(
    compiled: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(build.SWITCH, raising=False)
    monkeypatch.setattr(library, "PATH", prepare_editable(sources))
    assert native().library is not None


@pytest.mark.parametrize("how", HIDDEN)
def test_an_editable_installation_without_a_compiler_uses_no_old_library(
    how: str, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = sources / "src" / "vitral" / "model" / "native" / build.LIBRARY
    place.write_bytes(b"an older one")
    hide(monkeypatch, how)
    assert prepare_editable(sources) == place
    assert place.read_bytes() == b"an older one"
    monkeypatch.setattr(library, "PATH", place)
    assert native().library is None
