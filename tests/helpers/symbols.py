"""Graphs for any length are traced with symbols in the place of lengths, which the checks of annotations refuse."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def symbolic_lengths() -> Iterator[None]:
    """Annotations are not checked."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
