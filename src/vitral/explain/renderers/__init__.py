"""A walkthrough in every form: plain text, Markdown, a page, plain data for JSON, LaTeX."""

from vitral.explain.renderers.data import to_plain
from vitral.explain.renderers.latex import to_latex
from vitral.explain.renderers.pages import to_markdown, to_page, to_sections
from vitral.explain.walkthrough import to_text

__all__ = ["to_latex", "to_markdown", "to_page", "to_plain", "to_sections", "to_text"]
