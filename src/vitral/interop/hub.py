"""Models of the Hugging Face hub: only configuration, safetensors and tokenizer files, of one recorded revision."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.interop.foreign import needed

PREFIX = "hf:"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)
WANTED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    *TOKENIZER_FILES,
)
"""Files that are downloaded; nothing that may hold a program is among them."""


def is_hub(source: str) -> bool:
    """Whether a source is a name on the hub."""
    return source.startswith(PREFIX)


def fetched(source: str, wanted: Sequence[str] = WANTED) -> tuple[Path, dict[str, str]]:
    """The files of a model on the hub, in the hub's own cache, and its name with the exact revision.

    Args:
        source: `hf:owner/name`, or `hf:owner/name@revision`.
        wanted: patterns of the files.

    Raises:
        UsageError: the package is missing, the name is none, or the hub cannot be reached or refuses.
    """
    name, _at, revision = source.removeprefix(PREFIX).partition("@")
    if not name or name.count("/") > 1 or not all(name.split("/")):
        raise UsageError(
            "{source}: not a name on the hub; write hf:OWNER/NAME or hf:OWNER/NAME@REVISION", source=source
        )
    hub = needed("huggingface_hub")
    exact = _asked(source, lambda: hub.model_info(name, revision=revision or None).sha)
    folder = _asked(source, lambda: hub.snapshot_download(name, revision=exact, allow_patterns=list(wanted)))
    return Path(folder), {"hub": name, "revision": exact}


def _asked(source: str, question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception as error:  # of the hub's client, of its HTTP library, of the system
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        kinds = " ".join(kind.__name__ for kind in type(error).__mro__)
        if "Connect" in kinds or "Timeout" in kinds:  # of each of them
            raise UsageError("{source}: the hub cannot be reached ({error})", source=source, error=first) from None
        raise UsageError("{source}: {error}", source=source, error=first) from None
