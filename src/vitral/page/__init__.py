"""The page of a run: one HTML file that carries the run's model and computes it in the browser."""

from vitral.page.content import PageContent, page_content
from vitral.page.document import page_document

__all__ = ["PageContent", "page_content", "page_document"]
