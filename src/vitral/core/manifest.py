"""The manifest of a folder of pages and figures: a sealed list of its files with their hashes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError, reason
from vitral.core.files import names, read
from vitral.core.language import N_
from vitral.core.seals import listing, sealed_json, unsealed_json

MANIFEST = "MANIFEST.json"
FORMAT = 1
MOST_MANIFEST = 1 << 22
"""Maximum bytes of a manifest; more than ten thousand files."""
MOST_FILE = 1 << 28
"""Maximum bytes of a page or a figure."""


def manifest(files: Mapping[str, bytes]) -> bytes:
    """The manifest of these files, by their names."""
    return sealed_json({"format": FORMAT, "files": listing(files)})


def check_report(folder: Path) -> list[str]:
    """Complaints about a report folder, one line each: files that are missing or were changed since they were written.

    A folder that does not exist, or is empty, has no report and no complaint.
    """
    try:
        if not names(folder):
            return []
        if MANIFEST not in names(folder):
            complaint = N_("{name} is missing: the report was not finished, or is of an earlier Vitral; write it again")
            return [complaint.format(name=MANIFEST)]
        listed = _listed(read(folder / MANIFEST, MOST_MANIFEST))
    except (UsageError, ValueError, OSError) as error:
        return [N_("{name}: {what}").format(name=MANIFEST, what=reason(error))]
    return [complaint for name, facts in listed.items() if (complaint := _complaint(folder, name, facts))]


def _listed(raw: bytes) -> dict[str, Any]:
    manifest = unsealed_json(raw)
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("files"), dict):
        raise ValueError(
            N_("it is of format {found!a:.40}, this Vitral reads {format}").format(
                found=manifest.get("format"), format=FORMAT
            )
        )
    return manifest["files"]


def _complaint(folder: Path, name: str, facts: Any) -> str:
    try:
        if not os.path.lexists(folder / name):
            return N_("{name!a:.80}: is missing").format(name=name)
        content = read(folder / name, MOST_FILE)
    except (UsageError, ValueError, OSError) as error:
        return N_("{name!a:.80}: {what}").format(name=name, what=reason(error))
    same = listing({name: content})[name] == facts
    return "" if same else N_("{name!a:.80}: was changed since it was written").format(name=name)
