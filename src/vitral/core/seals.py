"""Seals: JSON that contains its own hash, lists of files with their hashes, and the one of a folder of pages.

A seal detects every accidental change. It is no protection from an attacker, who can compute a new hash.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from vitral.core.errors import UsageError, reason
from vitral.core.files import as_json, names, read, sha256
from vitral.core.language import N_

SEAL = "sha256"


def sealed_json(content: Mapping[str, Any]) -> bytes:
    """Plain data as JSON with a last key "sha256", the hash of the JSON without it.

    >>> unsealed_json(sealed_json({"a": 1}))
    {'a': 1}
    """
    return as_json({**content, SEAL: sha256(as_json(dict(content)))})


def unsealed_json(raw: bytes) -> dict[str, Any]:
    """The plain data of `sealed_json`.

    Raises:
        ValueError: it does not agree with its hash, or is no JSON object.
    """
    content = json_object(raw)
    seal = content.pop(SEAL, None)
    if seal is None or raw != sealed_json(content):
        raise ValueError(N_("its content does not agree with its SHA-256"))
    return content


def json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in these bytes, sealed or not.

    Raises:
        ValueError: there is none.
    """
    try:
        found: Any = json.loads(raw)
    except RecursionError:
        raise ValueError(N_("it is nested too deeply")) from None
    if not isinstance(found, dict):
        raise ValueError(N_("it is not a JSON object"))
    return cast("dict[str, Any]", found)


def listing(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Size and hash of each file, for a manifest.

    >>> listing({"a": b"hello"})["a"]["bytes"]
    5
    """
    return {name: {"bytes": len(content), "sha256": sha256(content)} for name, content in files.items()}


MANIFEST = "MANIFEST.json"
FORMAT = 1
MOST_MANIFEST = 1 << 22
"""Maximum bytes of a manifest; more than ten thousand files."""
MOST_FILE = 1 << 28
"""Maximum bytes of a page or a figure."""


def manifest(files: Mapping[str, bytes]) -> bytes:
    """The manifest of a folder of pages and figures, of these files by their names."""
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
        content = read(folder / name, MOST_FILE)
    except FileNotFoundError:
        return N_("{name!a:.80}: is missing").format(name=name)
    except (UsageError, ValueError, OSError) as error:
        return N_("{name!a:.80}: {what}").format(name=name, what=reason(error))
    same = listing({name: content})[name] == facts
    return "" if same else N_("{name!a:.80}: was changed since it was written").format(name=name)
