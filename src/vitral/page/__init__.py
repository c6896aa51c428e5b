"""The page of a run: one HTML file that carries the run's model, or the same page over a server on this machine."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.page.content import PageContent, page_content, page_of
    from vitral.page.document import page_document

# What the server paints first needs no PyTorch.
__getattr__ = lazily(__name__)
