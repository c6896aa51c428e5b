"""Plots and pages from plain data only, without knowledge of models, runs or studies.

`lines`, `intervals`, `bars`, `grid` and `maps` draw in the one style of `style`, which writes the files. `sections` are
the pieces of a report; `html.page` and `markdown.markdown` write them. `text` formats numbers and hidden characters.
"""
