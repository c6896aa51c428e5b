"""Pages: views of plain data as HTML, Markdown and figures."""
