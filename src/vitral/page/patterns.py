r"""Patterns of pre-tokenizers for a browser: the same matches, whatever Unicode version either side has.

A pattern of the `tokenizers` package is written again for JavaScript. Its classes of characters (`\p{L}`, `\s`) are
not: the package is asked which characters they contain, and the page carries the ranges.
"""

import re
from collections.abc import Iterable
from functools import cache

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The words of GPT-2 (Radford et al. 2019), which the package's `ByteLevel` uses."""
DIGITS = "digits"
"""Not a class of patterns: what the package's `Digits` takes for one."""

Ranges = tuple[tuple[int, int], ...]
"""Code points, first and last of each range."""

_AT_ONCE = 2048
_SURROGATES = range(0xD800, 0xE000)
_EVERYWHERE = ((0, 0x40000), (0xE0000, 0xE1000))
"""Where characters differ. Elsewhere (unassigned and private planes) one code point stands for all after it."""
_ALIKE = ((0x40000, 0xDFFFF), (0xE1000, 0x10FFFF))
_ESCAPED = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!")


class Unwritable(Exception):
    """A pattern has a part that is not written again here."""


@cache
def members(name: str) -> Ranges:
    r"""The characters that the package takes for members of a class.

    Args:
        name: as in a pattern, `\p{L}`, `\s`, or one letter whose case is ignored, `(?i:s)`; or `DIGITS`.
    """
    from tokenizers import Regex, pre_tokenizers

    cut = (
        pre_tokenizers.Digits(individual_digits=False)
        if name == DIGITS
        else pre_tokenizers.Split(Regex(f"(?:{name})+"), "removed")
    )

    def found(points: range) -> list[int]:
        pieces = cut.pre_tokenize_str("".join(map(chr, points)))
        spans = [span for _, span in pieces]
        if name == DIGITS:  # runs of digits and of other characters alternate
            begins_with_one = len(cut.pre_tokenize_str("a" + chr(points[0]))) == 2
            spans = spans[begins_with_one::2]
        others = {at for begin, end in spans for at in range(begin, end)}
        return [point for at, point in enumerate(points) if at not in others]

    ranges: list[list[int]] = []
    for begin, end in _EVERYWHERE:
        for first in range(begin, end, _AT_ONCE):
            points = range(first, min(first + _AT_ONCE, end))
            if points[0] in _SURROGATES:
                continue
            for point in found(points):
                if ranges and ranges[-1][1] == point - 1:
                    ranges[-1][1] = point
                else:
                    ranges.append([point, point])
    ranges += [[first, last] for first, last in _ALIKE if found(range(first, first + 1))]
    return tuple((first, last) for first, last in sorted(ranges))


def for_browser(pattern: str) -> tuple[str, frozenset[str]]:
    r"""A pattern for JavaScript (flag u), and the classes that it leaves to be filled in.

    A class stands in the result as `⟨name⟩`, inside brackets or in brackets of its own.

    >>> pattern, classes = for_browser(r" ?\p{L}+|[^\s\p{L}]|\S")
    >>> print(pattern, *sorted(classes))
    \u{20}?[⟨\p{L}⟩]+|[^⟨\s⟩⟨\p{L}⟩]|[^⟨\s⟩] \p{L} \s

    Raises:
        Unwritable: it has a part that is not known here.
    """
    return _Writer(pattern).written()


def classes_of(names: Iterable[str]) -> dict[str, list[int]]:
    """The ranges of each class, as distances: from the end of the range before to its first, and its length - 1."""
    found: dict[str, list[int]] = {}
    for name in sorted(names):
        flat, before = list[int](), 0
        for first, last in members(name):
            flat += [first - before, last - first]
            before = last
        found[name] = flat
    return found


class _Writer:
    """Writes one pattern again, from left to right."""

    def __init__(self, pattern: str) -> None:
        self.rest, self.names, self.groups = pattern, set[str](), 0

    def written(self) -> tuple[str, frozenset[str]]:
        told = self.alternatives(ignore_case=False)
        if self.rest:
            raise Unwritable(self.rest)
        try:
            self.asked()
        except Exception as error:  # the package's own class
            raise Unwritable(str(error)) from None
        return told, frozenset(self.names)

    def asked(self) -> None:
        for name in self.names:
            members(name)

    def taken(self, start: str) -> bool:
        if not self.rest.startswith(start):
            return False
        self.rest = self.rest[len(start) :]
        return True

    def alternatives(self, *, ignore_case: bool) -> str:
        told = ""
        while self.rest and not self.rest.startswith(")"):
            told += "|" if self.taken("|") else self.repeated(ignore_case=ignore_case)
        return told

    def repeated(self, *, ignore_case: bool) -> str:
        told = self.atom(ignore_case=ignore_case)
        count = re.match(r"[?*+]|\{\d+(,\d*)?\}", self.rest)
        if count is None:
            return told
        self.rest = self.rest[count.end() :]
        if (self.rest[:1] in ("?", "+", "*") and len(count[0]) > 1) or self.rest.startswith(("*", "{")):
            raise Unwritable(self.rest)
        if self.taken("?"):
            return f"{told}{count[0]}?"
        if self.taken("+"):  # possessive: a lookahead never gives back what it matched
            self.groups += 1
            return f"(?=(?<g{self.groups}>{told}{count[0]}))\\k<g{self.groups}>"
        return told + count[0]

    def atom(self, *, ignore_case: bool) -> str:
        if self.taken("(?i:"):
            return self.group("(?:", ignore_case=True)
        for start in _GROUPS:
            if self.taken(start):
                return self.group(start, ignore_case=ignore_case)
        if self.rest.startswith("(?"):
            raise Unwritable(self.rest)
        if self.taken("("):
            return self.group("(?:", ignore_case=ignore_case)
        if self.taken("["):
            return self.bracket(ignore_case=ignore_case)
        if self.taken("."):
            return "[^\\n]"
        if self.rest[0] in "^$*+?{}])":
            raise Unwritable(self.rest)
        member, negated = self.member()
        if len(member) == 1:
            return self.letter(member, ignore_case=ignore_case)
        return f"[{'^' * negated}⟨{member}⟩]"

    def group(self, start: str, *, ignore_case: bool) -> str:
        inside = self.alternatives(ignore_case=ignore_case)
        if not self.taken(")"):
            raise Unwritable(self.rest)
        return f"{start}{inside})"

    def letter(self, letter: str, *, ignore_case: bool) -> str:
        if ignore_case and letter.isalpha():
            name = f"(?i:{letter})"
            self.names.add(name)
            return f"[⟨{name}⟩]"
        return _escaped(letter)

    def bracket(self, *, ignore_case: bool) -> str:
        told = "[^" if self.taken("^") else "["
        while not self.taken("]"):
            if not self.rest or self.rest.startswith(("[", "&&")):
                raise Unwritable(self.rest)
            member, negated = self.member()
            if negated:
                raise Unwritable(self.rest)
            if ignore_case and len(member) == 1 and member.isalpha():
                member = f"(?i:{member})"
                self.names.add(member)
            told += _escaped(member) if len(member) == 1 else f"⟨{member}⟩"
            if len(member) == 1 and self.rest.startswith("-") and not self.rest.startswith("-]"):
                self.rest = self.rest[1:]
                last, _ = self.member()
                if len(last) != 1:
                    raise Unwritable(self.rest)
                told += f"-{_escaped(last)}"
        return f"{told}]"

    def member(self) -> tuple[str, bool]:
        """One letter, or a class by its name, and whether it is negated."""
        if not self.taken("\\"):
            letter, self.rest = self.rest[0], self.rest[1:]
            return letter, False
        found = re.match(r"([pP])\{([A-Za-z_]+)\}|([sSdDwW])|([rntfv])|u([0-9A-Fa-f]{4})|([^A-Za-z0-9])", self.rest)
        if found is None:
            raise Unwritable(self.rest)
        self.rest = self.rest[found.end() :]
        p, prop, short, control, code, plain = found.groups()
        if control or code or plain:
            return _ESCAPED[control] if control else chr(int(code, 16)) if code else plain, False
        name = f"\\p{{{prop}}}" if p else f"\\{short.lower()}"
        self.names.add(name)
        return name, (p or short).isupper()


def _escaped(letter: str) -> str:
    return letter if (letter.isascii() and letter.isalnum()) or letter == "'" else f"\\u{{{ord(letter):x}}}"
