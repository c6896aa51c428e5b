"""A walkthrough in every form: plain text, Markdown, a page, plain data for JSON, LaTeX."""

from vitral.explanation.renderers.latex import to_latex
from vitral.explanation.renderers.live import blanks_of, to_live
from vitral.explanation.renderers.pages import to_markdown, to_page, to_sections
from vitral.explanation.walkthrough import to_plain, to_text

__all__ = ["blanks_of", "to_latex", "to_live", "to_markdown", "to_page", "to_plain", "to_sections", "to_text"]
