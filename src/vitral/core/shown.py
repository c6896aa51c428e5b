"""Results that a prompt shows as text, and a notebook as their page."""

from importlib import import_module
from typing import Any, ClassVar

VIEWS = "vitral.report.notebook"
"""The module that writes the text and the page of a result; it is imported when one is first shown."""


class Shown:
    """A result that a prompt shows as text and a notebook as its page."""

    _is_only_text: ClassVar[bool] = False
    """Whether the page has no more than the text, so that a short one needs little room."""

    def __str__(self) -> str:
        """The text that a person reads."""
        return _views().text_of(self)

    def __repr__(self) -> str:
        """The text that a person reads."""
        return str(self)

    def _repr_html_(self) -> str:
        """The page in a sandboxed frame."""
        return _views().in_frame(self, is_only_text=self._is_only_text)


def _views() -> Any:
    return import_module(VIEWS)
