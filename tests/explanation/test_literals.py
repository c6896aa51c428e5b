"""Where values stand in a TOML file: the literal found is the value read."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vitral.explanation.examples.document import TomlDocument, literals


def leaves(value: Any, path: tuple = ()) -> dict:
    if isinstance(value, dict):
        return {key: leaf for name, part in value.items() for key, leaf in leaves(part, (*path, name)).items()}
    if isinstance(value, list) and value:
        return {key: leaf for place, part in enumerate(value) for key, leaf in leaves(part, (*path, place)).items()}
    return {path: value}


def test_a_line_is_that_of_the_deepest_part_there_is() -> None:
    document = TomlDocument("t", "a = 1\n[[t]]\nz=1\n[[t]]\nz= [\n2]\n")
    for path, line in ((("t", 1, "nothing"), 6), (("t", 0), 3), (("nowhere",), 1)):
        assert f"line {line}: " in str(document.refuse("wrong", *path))


gaps = st.sampled_from(["", " ", "\t", "\r\n", "\n\n", " # ] } , \" '''\n"])
values = st.sampled_from(
    ["1_000", "0xff", "-inf", "nan", "1979-05-27 07:32:00", '""', "'\\'", '"\\"#"', '""""a""""', "'''\n]'''", '"\\\\"']
)


@st.composite
def spaced(draw: Any, depth: int = 3) -> str:
    """A literal as no writer would lay it out: blanks, comments and line ends wherever they may stand."""
    if not depth or draw(st.booleans()):
        return draw(values)
    inner = draw(st.lists(spaced(depth - 1), max_size=3))
    if draw(st.booleans()):
        return "{" + ",".join(f" k{place} . 'z#' =\t{part} " for place, part in enumerate(inner)) + "}"
    trailing = "," + draw(gaps) if inner and draw(st.booleans()) else ""
    return "[" + draw(gaps) + ",".join(draw(gaps) + part + draw(gaps) for part in inner) + trailing + "]"


@given(st.lists(st.tuples(st.sampled_from(["[T{}]", "[[L]]", "[ L . m{} ]", "[T.'u v'.w{}]"]), spaced()), max_size=4))
def test_any_layout_is_followed(tables: list[tuple[str, str]]) -> None:
    written = "[[L]]\r\n" + "".join(
        f"{header.format(number)} # [no]\r\n \t'a b'.c= {literal} # = 2\n"
        for number, (header, literal) in enumerate(tables)
    )
    found = literals(written)
    for path, value in leaves(tomllib.loads(written)).items():
        literal = found[path]
        assert written[literal.column : literal.end] == literal.written
        assert literal.line == written.count("\n", 0, literal.column) + 1
        assert repr(tomllib.loads(f"v = {literal.written}")["v"]) == repr(value)
