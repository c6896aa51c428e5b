"""LaTeX documents from templates, for pdflatex with amsmath; all text is escaped where it is written."""

from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from vitral.core.latex import escape


def document(template: str, **parts: Any) -> Markup:
    """A filled template; text that is `Markup` is LaTeX already."""
    return Markup(_templates().get_template(template).render(**parts))


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vitral.report", "templates"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(str(value))),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
    )
    environment.filters["number"] = _number
    return environment


def _number(cell: str | None) -> Markup:
    """A number of a table in mathematics, where a bare comma would be that of a list; words as they are."""
    text = escape(cell or "")
    return Markup(text if not cell or any(map(str.isalpha, cell)) else f"${text.replace(',', '{,}')}$")
