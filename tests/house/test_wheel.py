"""The wheel: everything that the package reads is in it, and nothing forbids a newer PyTorch."""

import email
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import vitral

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    built = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"]))
    return zipfile.ZipFile(built)


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    package = ROOT / "src" / "vitral"
    # The compiled library is there where a compiler is; one that lies beside its source is not packed.
    left_out = {package / "model" / "native" / "_step.so"}
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts} - left_out
    assert {path.suffix for path in files} == {".py", ".toml", ".txt", ".md", ".po", ".html", ".css", ".js", ".c"}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name and not name.endswith(".so")}
    assert packed == {path.relative_to(ROOT / "src").as_posix() for path in files}


def test_the_requirements_have_lower_bounds_only(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Version"] == vitral.__version__
    required = metadata.get_all("Requires-Dist", [])
    assert "torch>=2.6" in required
    assert not [each for each in required if set("<=~!") & set(each.split(";")[0].replace(">=", ""))]
