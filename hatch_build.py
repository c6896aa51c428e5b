"""The build hook: a wheel or an editable installation gets `step.c` compiled, where a C compiler can do it.

Without one everything is installed all the same, and Vitral generates with PyTorch.
"""

import importlib.util
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

ROOM = "vitral/model/native"


class CompiledStep(BuildHookInterface):
    """Compiles the library: of an editable installation beside its source, else only into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library and, if there is one, add it to the wheel."""
        builder = _builder(Path(self.root) / "src" / ROOM / "build.py")
        if self.target_name != "wheel" or builder.is_off():
            return
        if version == "editable":
            self._tell(builder.build(builder.SOURCE.parent))
            return
        self._scratch = tempfile.TemporaryDirectory()
        folder = Path(self._scratch.name)
        complaint = builder.build(folder)
        self._tell(complaint)
        if complaint is None:
            build_data["force_include"][str(folder / builder.LIBRARY)] = f"{ROOM}/{builder.LIBRARY}"
            # Any Python can open it, but only this system.
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built for the wheel."""
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()

    def _tell(self, complaint: str | None) -> None:
        if complaint is not None:
            self.app.display_warning(f"Vitral is installed without generation in C: {complaint}")


def _builder(path: Path) -> ModuleType:
    """The module at `path`, without its package, which needs PyTorch."""
    spec = importlib.util.spec_from_file_location("vitral_native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _platform() -> str:
    """The platform's tag; that of a portable Linux wheel is given by auditwheel."""
    return next(
        tag.platform for tag in sys_tags() if "manylinux" not in tag.platform and "musllinux" not in tag.platform
    )
