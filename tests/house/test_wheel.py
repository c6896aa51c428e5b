"""The wheel, made from the archive of the sources: whole, compiled where a compiler is, with lower bounds only."""

import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from vitral.model.native import build, library, native

ROOT = Path(__file__).parents[2]
sdist, wheels = (pytest.importorskip(f"hatchling.builders.{name}") for name in ("sdist", "wheel"))
pytestmark = pytest.mark.merge

HIDDEN = {"no compiler": {"PATH": "/nonexistent"}, "turned off": {build.SWITCH: "0"}}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the sources, which has no library, whatever lies beside the source."""
    folder = tmp_path_factory.mktemp("sdist")
    return Path(next(sdist.SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


@pytest.fixture
def sources(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked archive, where a compiler may be used."""
    monkeypatch.delenv(build.SWITCH, raising=False)
    monkeypatch.delenv("CC", raising=False)
    with tarfile.open(archive) as packed:
        assert not [name for name in packed.getnames() if name.endswith(".so")]
        packed.extractall(tmp_path / "sources", filter="data")
    return next((tmp_path / "sources").iterdir())


def wheel(sources: Path) -> zipfile.ZipFile:
    built = next(wheels.WheelBuilder(str(sources)).build(directory=str(sources.parent), versions=["standard"]))
    return zipfile.ZipFile(built)


def packed(made: zipfile.ZipFile) -> set[str]:
    return {name for name in made.namelist() if ".dist-info/" not in name}


def prepared(sources: Path) -> Path:
    """Run the hook as an editable installation of this folder does; the place of its library."""
    data: dict[str, Any] = {"force_include": {}}
    for hook in wheels.WheelBuilder(str(sources)).get_build_hooks(str(sources)).values():
        hook.initialize("editable", data)
        hook.finalize("editable", data, "")
    assert data == {"force_include": {}}  # nothing goes into the wheel
    return sources / "src" / "vitral" / "model" / "native" / build.LIBRARY


@pytest.mark.full
@pytest.mark.skipif(build.compiler() is None, reason="no C compiler is installed")
def test_with_a_compiler_the_library_is_in_the_wheel_and_beside_an_editable_source(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = wheel(sources)
    assert not str(made.filename).endswith("-any.whl")
    (sources / build.LIBRARY).write_bytes(made.read(f"vitral/model/native/{build.LIBRARY}"))
    for place in (sources / build.LIBRARY, prepared(sources)):
        monkeypatch.setattr(library, "PATH", place)
        assert native().library is not None


@pytest.mark.parametrize("how", HIDDEN)
def test_without_a_compiler_everything_installs_and_no_old_library_is_used(
    how: str, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in HIDDEN[how].items():
        monkeypatch.setenv(name, value)
    made = wheel(sources)
    assert str(made.filename).endswith("-py3-none-any.whl")
    package = ROOT / "src" / "vitral"
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    files -= {package / "model" / "native" / build.LIBRARY}  # one that lies beside its source is not packed
    assert {path.suffix for path in files} == {
        ".py",
        ".toml",
        ".txt",
        ".md",
        ".po",
        ".html",
        ".css",
        ".js",
        ".c",
        ".tex",
        ".json",
        ".jsonl",
        ".safetensors",
    }
    assert packed(made) == {path.relative_to(ROOT / "src").as_posix() for path in files}
    place = sources / "src" / "vitral" / "model" / "native" / build.LIBRARY
    place.write_bytes(b"an older one")
    assert prepared(sources) == place
    assert place.read_bytes() == b"an older one"
    monkeypatch.setattr(library, "PATH", place)
    assert native().library is None
