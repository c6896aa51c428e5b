"""Compile `step.c` into the library beside it: `python -m vitral.model.native`, or `make native`.

The build hook of the package (hatch_build.py) runs this file by its path, before Vitral and PyTorch are installed, so
it imports the standard library only. Nothing needs the library: without it PyTorch computes the same.
"""

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("step.c")
LIBRARY = "_step.so"
"""The library's name on every system: it is opened by its path."""
SWITCH = "VITRAL_NATIVE"
"""An environment variable: 0 neither builds nor uses the library."""
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-shared",
    "-pthread",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
)
QUIET = ("-Wno-psabi",)
SECONDS = 300


def is_off() -> bool:
    """Whether the environment turns the library off."""
    return os.environ.get(SWITCH) == "0"


def source_hash() -> str:
    """The SHA-256 of the source, which the library carries."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def compiler() -> list[str] | None:
    """The command of the C compiler: CC, or the first of the usual names that is installed."""
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        return named
    return next(([path] for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def build(folder: Path, *more: str) -> str | None:
    """Compile the library into a folder, under a name of its own first; an old one stays where this fails.

    Args:
        folder: where `LIBRARY` is written.
        more: further options of the compiler.

    Returns:
        Why there is no library, in a line; None if it was built.
    """
    command = compiler()
    if command is None:
        return "no C compiler was found"
    complaint = ""
    # Where the system cannot choose between versions of a function, there is one version.
    for versions in ((), ("-DVITRAL_ONE_TARGET",)):
        with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
            made = Path(scratch) / LIBRARY
            named = f'-DVITRAL_SOURCE="{source_hash()}"'
            words = [*command, *FLAGS, *QUIET, *versions, *more, named, str(SOURCE), "-o", str(made), "-lm"]
            try:
                done = subprocess.run(
                    words, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"{command[0]}: {error}"
            if done.returncode == 0 and made.is_file():
                os.replace(made, folder / LIBRARY)
                return None
            complaint = next((line for line in done.stderr.splitlines() if "error" in line), "the compiler failed")
    return f"{command[0]}: {complaint}"


def main() -> int:
    """Build the library beside the source."""
    argparse.ArgumentParser(description="Compile generation in C beside its source.").parse_args()
    complaint = build(SOURCE.parent)
    print(complaint or SOURCE.with_name(LIBRARY))
    return 1 if complaint else 0


if __name__ == "__main__":
    sys.exit(main())
