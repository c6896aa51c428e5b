"""Pages and tables from plain results: a text, a model, a run, a worked example, the demonstration.

Nothing here measures or judges. A page is a list of `vitral.report.sections`, written as HTML or Markdown.
"""
