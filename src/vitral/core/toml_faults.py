"""The messages of Python's TOML parser, in the current language."""

import re

from vitral.core.language import N_, _, language, retold

FAULTS = (
    N_("Cannot declare {key} twice"),
    N_("Cannot mutate immutable namespace {key}"),
    N_("Cannot overwrite a value"),
    N_("Cannot redefine namespace {key}"),
    N_("Duplicate inline table key {key}"),
    N_("Escaped character is not a Unicode scalar value"),
    N_("Expected {sign}"),
    N_("Expected '=' after a key in a key/value pair"),
    N_("Expected ']' at the end of a table declaration"),
    N_("Expected ']]' at the end of an array declaration"),
    N_("Expected newline or end of document after a statement"),
    N_("Found invalid character {character}"),
    N_("Illegal character {character}"),
    N_("Invalid date or datetime"),
    N_("Invalid hex value"),
    N_("Invalid initial character for a key part"),
    N_("Invalid statement"),
    N_("Invalid value"),
    N_("Unclosed array"),
    N_("Unclosed inline table"),
    N_("Unescaped '\\' in a string"),
    N_("Unterminated string"),
)
"""Its messages, in the spelling of Python 3.11 and newer."""
_PLACED = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def toml_fault(error: ValueError) -> str:
    """The message of an error of `tomllib`; one that is not known stays as it is.

    >>> import tomllib
    >>> from vitral.core.language import in_language
    >>> try:
    ...     tomllib.loads("x = [1")
    ... except tomllib.TOMLDecodeError as error:
    ...     with in_language("pt"):
    ...         print(toml_fault(error))
    lista sem colchete de fechamento (no fim do documento)
    """
    placed = _PLACED.fullmatch(str(error))
    if language() == "en" or placed is None:
        return str(error)
    fault, line, column = retold(placed[1]), placed[2], placed[3]
    if line is None:
        return _("{fault} (at end of document)", fault=fault)
    return _("{fault} (at line {line}, column {column})", fault=fault, line=line, column=column)
