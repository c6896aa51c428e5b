"""The compiled library: found, compared with its source, and opened once."""

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vitral.core.language import N_
from vitral.model.native.build import LIBRARY, SOURCE, SWITCH, is_off, source_hash

PATH = SOURCE.with_name(LIBRARY)
BUILD = "python -m vitral.model.native"
"""The command that builds it where Vitral is."""


@dataclass(frozen=True)
class Native:
    """The library, or why there is none.

    Attributes:
        library: opened; None if it cannot be used.
        detail: in one line, the instructions it uses or why it is not used, as a message.
    """

    library: ctypes.CDLL | None
    detail: str


def native() -> Native:
    """The library beside its source, if it is built, up to date and not turned off."""
    if is_off():
        return Native(None, N_("turned off by {name}").format(name=f"{SWITCH}=0"))
    return _opened(PATH)


@lru_cache(maxsize=4)
def _opened(path: Path) -> Native:
    if not path.is_file():
        return Native(None, N_("not built; {command} builds it").format(command=BUILD))
    try:
        library = ctypes.CDLL(str(path))
        library.vitral_step_source.restype = library.vitral_step_processor.restype = ctypes.c_char_p
        library.vitral_step_memory.restype = library.vitral_step_write.restype = ctypes.c_int64
        of_source, processor = library.vitral_step_source(), library.vitral_step_processor()
    except (OSError, AttributeError):
        return Native(None, N_("cannot be opened; {command} builds it anew").format(command=BUILD))
    if of_source != source_hash().encode():
        sentence = N_("built from another version of its source, so it is not used; {command} builds it anew")
        return Native(None, sentence.format(command=BUILD))
    return Native(library, processor.decode())
