"""Project Gutenberg's licence, which is stripped from the books of a text."""

import re

_BEFORE = re.compile(r"^\*\*\* START OF TH[^\r\n]*(?:\r\n|\r|\n)", re.MULTILINE)
_AFTER = re.compile(r"^\*\*\* END OF TH", re.MULTILINE)


def strip_licence(text: str) -> str:
    r"""The text between Project Gutenberg's markers; a text without both of them is returned unchanged.

    A book begins after the line that starts with `*** START OF TH` and ends before the line that starts with
    `*** END OF TH`. Of a file of several books, all are kept; so is the rest of one that the beginning or the end of
    the file cuts off.

    >>> strip_licence("licence\n*** START OF THE EBOOK ***\nthe work\n*** END OF THE EBOOK ***\nmore")
    'the work\n'
    """
    before = _BEFORE.search(text)
    if before is None or _AFTER.search(text, before.end()) is None:
        return text
    cut = _AFTER.search(text, 0, before.start())
    books = [text[: cut.start()]] if cut else []
    while before:
        after = _AFTER.search(text, before.end())
        books.append(text[before.end() : after.start() if after else None])
        before = _BEFORE.search(text, after.end()) if after else None
    return "".join(books)
