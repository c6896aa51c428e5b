"""Plots and the HTML shell, from plain data only: nothing here knows a model, a run or a study.

`style` holds the one look and writes files; `curves`, `intervals`, `bars` and `maps` draw; `sections` are the pieces a
page is made of, which `html.page` and `markdown.markdown` turn into the same report twice.
"""
