"""The files of a checkpoint: their names, how large they may be, and how they are verified before use.

The checks are, in this order: the manifest's own hash, the names and sizes of all files, the hashes of those that are
read; then tensors are parsed. Hashes detect accidents, not attackers.
"""

import re
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path

import safetensors

from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import as_json, names, read, sha256
from vitral.core.seals import unsealed_json

FORMAT = 2
FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "history.json")
WEIGHTS, OPTIMIZER, STATE, HISTORY = FILES
MANIFEST = "MANIFEST.json"
STEP = re.compile(r"step-\d{8,9}")

MOST_BYTES = 1 << 40
"""Maximum bytes of a file of tensors."""
MOST_PLAIN = 1 << 20
"""Maximum bytes of a JSON file, and of the header of a tensor file."""


def contents(folder: Path, wanted: Collection[str] = FILES) -> tuple[dict[str, bytes], str]:
    """The bytes of some of a checkpoint's files, compared with its manifest, and the hash that the manifest ends with.

    Of the other files, name and size are compared.

    Args:
        folder: the checkpoint's.
        wanted: the files to read.

    Raises:
        UsageError: a file is missing, damaged or too many, or of another format; names it.
        StorageError: a file cannot be read.
    """
    with understood(folder):
        manifest = unsealed_json(read(folder / MANIFEST, MOST_PLAIN))
        if manifest["format"] != FORMAT:
            raise UsageError(
                "{folder}: format {format!a:.40}, this Vitral reads {ours}; the last one that reads 1 and 3 is that of "
                "27 November 2026",
                folder=folder,
                format=manifest["format"],
                ours=FORMAT,
            )
        for name in sorted({*names(folder)} ^ {MANIFEST, *manifest["files"]}):
            if name in manifest["files"]:
                raise FileNotFoundError(None, None, name)
            raise UsageError(
                "{where}: {name!a:.80} does not belong to a checkpoint; remove it", where=folder, name=name
            )
        content = dict[str, bytes]()
        for name in FILES:
            said, path = manifest["files"][name], folder / name
            is_whole = path.stat().st_size == said["bytes"]
            if is_whole and name in wanted:
                content[name] = read(path, MOST_BYTES if name.endswith(".safetensors") else MOST_PLAIN)
                is_whole = sha256(content[name]) == said["sha256"]
            if not is_whole:
                raise UsageError(
                    "{where}: {name} does not match {manifest}, the checkpoint is damaged",
                    where=folder,
                    name=name,
                    manifest=MANIFEST,
                )
        return content, sha256(as_json(manifest))


@contextmanager
def understood(folder: Path) -> Generator[None]:
    """Convert what a malformed checkpoint raises to one line."""
    try:
        yield
    except (UsageError, StorageError):
        raise
    except FileNotFoundError as error:
        raise UsageError(
            "{where}: {name} is missing, the checkpoint is incomplete",
            where=folder,
            name=Path(str(error.filename)).name,
        ) from None
    except OSError as error:
        raise StorageError("{where}: cannot be read ({reason})", where=folder, reason=reason(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, safetensors.SafetensorError) as error:
        raise UsageError("{path}: not a checkpoint of this run ({error})", path=folder, error=reason(error)) from None
