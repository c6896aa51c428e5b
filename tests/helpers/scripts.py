"""LaTeX and MathML of formulas as plain text, for the reader of printed equations."""

import re
from xml.etree import ElementTree

from equations import Unreadable

_GREEK = {
    "sigma": "σ",
    "mu": "μ",
    "varepsilon": "ε",
    "Phi": "Φ",
    "theta": "θ",
    "pi": "π",
    "partial": "∂",
    "infty": "∞",
    "cdot": "·",
    "max": "max",
    "sin": "sin",
    "cos": "cos",
    "ldots": "…",
    "top": "ᵀ",
}


class _LaTeX:
    """A reader of LaTeX as the same language's plain text."""

    def __init__(self, written: str) -> None:
        self.written, self.place = written, 0

    def group(self) -> str:
        """The inside of the braces that begin here."""
        if self.written[self.place] != "{":
            raise Unreadable(f"no braces at {self.written[self.place :]!r}")
        depth, start = 0, self.place + 1
        for place in range(self.place, len(self.written)):
            escaped = self.written[place - 1] == "\\" and self.written[place - 2 : place] != "\\\\"
            depth += 0 if escaped else {"{": 1, "}": -1}.get(self.written[place], 0)
            if not depth:
                self.place = place + 1
                return self.written[start:place]
        raise Unreadable(f"open braces: {self.written!r}")

    def plain(self) -> str:
        pieces: list[str] = []
        while self.place < len(self.written):
            pieces.append(self.piece())
        return re.sub(r"  +", " ", "".join(pieces)).strip()

    def piece(self) -> str:
        rest = self.written[self.place :]
        command = re.match(r"\\([a-zA-Z]+)\*? ?|\\(.)", rest)
        if command:
            self.place += command.end()
            return self.command(command[1] or command[2])
        letter = rest[0]
        if letter == "{":
            if rest.startswith("{,}"):
                self.place += 3
                return ","
            return self.powered(self.group())
        self.place += 1
        if letter in "_^":
            raise Unreadable(f"{letter} below nothing: {self.written!r}")
        if letter.isalpha():
            return self.named(letter)
        return {"-": "−", "&": ""}.get(letter, letter)

    def powered(self, base: str) -> str:
        below = _LaTeX(base).plain()
        if self.written[self.place : self.place + 1] != "^":
            return below
        self.place += 1
        exponent = _LaTeX(self.group()).plain()
        return f"exp({exponent})" if below == "e" else f"({below})^{_exponent(exponent)}"

    def named(self, letters: str) -> str:
        marks = ""
        if self.written[self.place : self.place + 2] == "^{":
            self.place += 1
            above = _LaTeX(self.group()).plain()
            turned = above.endswith("ᵀ")
            above = above.removesuffix("ᵀ")
            marks = (f"^{above}" if above else "") + "ᵀ" * turned
        if self.written[self.place : self.place + 2] == "_{":
            self.place += 1
            marks += f"[{_LaTeX(self.group()).plain()}]"
        return letters + marks

    def command(self, name: str) -> str:
        if name == "frac":
            above, below = _LaTeX(self.group()).plain(), _LaTeX(self.group()).plain()
            return f"(({above}) / ({below}))"
        if name == "sqrt":
            return f"√({_LaTeX(self.group()).plain()})"
        if name == "text":
            return self.named(_unescaped(self.group()))
        return self.symbol(name)

    def symbol(self, name: str) -> str:
        if name in ("left", "right"):
            return ""
        if name == "operatorname" and self.written[self.place : self.place + 5] == "{sen}":
            self.place += 6
            return "sen"
        if name in ("sum", "prod", "operatorname"):
            sign = {"sum": "Σ", "prod": "Π"}.get(name) or self.group()
            self.place += 1
            return f" {sign}_{_LaTeX(self.group()).plain()} "
        if name in ("begin", "end"):
            self.group()
            return ""
        if name in ("\\", "cr"):
            return "\n"
        if name in (",", " "):
            return " "
        if name not in _GREEK:
            raise Unreadable(f"no command {name}: {self.written!r}")
        return self.named(_GREEK[name])


_MATH = {"-": "−", "partial": "∂", "infty": "∞", "^2": "²", "surd": "√"}


def _exponent(written: str) -> str:
    return written if written.isdecimal() else f"({written})"


def _unescaped(words: str) -> str:
    quotes = (r"\textquotedblleft", "“"), (r"\textquotedblright", "”"), (r"\textquotesingle", "'")
    for escaped, plain in ((r"\ldots{}", "…"), ("{}", ""), (r"\_", "_"), (r"\^", "^"), *quotes):
        words = words.replace(escaped, plain)
    words = re.sub(r"\\texttt\{U\+([0-9A-F]+)\}", lambda found: chr(int(found[1], 16)), words)
    words = re.sub(r"\\ensuremath\{\\?([^{}]*)\}", lambda found: _MATH[found[1]], words)
    return re.sub(r"\\([&%$#{}])", r"\1", words)


def from_latex(written: str) -> str:
    written = written.replace(r"}\_\text{", r"\_").replace(r"\textasciicircum", "^")
    return "\n".join(line.strip() for line in _LaTeX(written).plain().splitlines())


def from_markdown(written: str) -> str:
    """As LaTeX, with wide letters for those that Markdown or TeX would obey, and names with underscores in braces."""
    name = re.compile(r"\{(?:\\text\{([^{}]*)\})?\\_(?:\\text\{([^{}]*)\})?\}")
    while name.search(written):
        written = name.sub(lambda found: rf"\text{{{found[1] or ''}\_{found[2] or ''}}}", written)
    return "".join(chr(ord(letter) - 0xFEE0) if "！" <= letter <= "～" else letter for letter in from_latex(written))


def from_mathml(written: str) -> str:
    """Lines of plain text of `math` elements with line breaks between them."""
    return "\n".join(_line(ElementTree.fromstring(line)) for line in written.split("<br>"))


def _line(element: ElementTree.Element) -> str:
    if element.tag == "span":
        return element.text or ""
    return re.sub(r"  +", " ", "".join(map(_plain, element))).strip()


_SIGNS = {
    "=": " = ",
    "+": " + ",
    "−": " − ",
    "\u2062": " ",
    "\u2061": "",
    "⊤": "ᵀ",
    ";": "; ",
    ",": ", ",
    "∑": "Σ",
    "∏": "Π",
}
_BUILT = {
    "mfrac": "(({}) / ({}))".format,
    "msqrt": lambda *inside: f"√({''.join(inside)})",
    "munder": " {}_{} ".format,
    "msub": lambda base, below: f"{base}[{below.replace(', ', ',')}]",
    "msubsup": lambda base, below, above: f"{base}{_mark(above)}[{below.replace(', ', ',')}]",
}


def _plain(element: ElementTree.Element) -> str:
    parts = [_plain(child) for child in element]
    letters = (element.text or "").replace("\xa0", " ")
    if element.tag in ("mi", "mn", "mtext"):
        return letters
    if element.tag == "mo":
        return _SIGNS.get(letters, letters)
    if element.tag == "mrow":
        begins = [child.tag for child in element][:1] == ["mo"]
        return "".join(parts).replace("− ", "−") if begins else "".join(parts)
    if element.tag == "msup":
        return _raised(element[1], *parts)
    if element.tag not in _BUILT:
        raise Unreadable(f"no element {element.tag}")
    return _BUILT[element.tag](*parts)


def _raised(above: ElementTree.Element, base: str, exponent: str) -> str:
    """A power, whose exponent is a row, or a name with a mark."""
    if above.tag != "mrow" or "⊤" in "".join(above.itertext()):
        return base + _mark(exponent)
    return f"exp({exponent})" if base == "e" else f"({base})^{_exponent(exponent)}"


def _mark(above: str) -> str:
    letters = above.removesuffix("ᵀ")
    return (f"^{letters}" if letters else "") + "ᵀ" * (letters != above)
