"""Seals: JSON that contains its own hash, and lists of files with their hashes.

A seal detects every accidental change. It is no protection from an attacker, who can compute a new hash.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from vitral.core.files import as_json, sha256
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
