"""The tags of a page."""

import re
from html import unescape


def attributes(written: str) -> dict[str, str]:
    """The attributes of a tag; of one without a value it is empty."""
    return {name: unescape(value) for name, value in re.findall(r'([\w-]+)(?:="([^"]*)")?', written)}


def tags(page: str) -> list[tuple[str, dict[str, str]]]:
    """Every tag that opens, with its attributes."""
    return [(tag, attributes(rest)) for tag, rest in re.findall(r"<([a-z]+)([^>]*)>", page)]
