"""Where values stand in a TOML file: the literal found is the value read."""

import tomllib
from typing import Any

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from vitral.explanation.examples.document import TomlDocument
from vitral.explanation.examples.places import places

keys = st.text(st.sampled_from('ab.1 é"#=[]'), min_size=1, max_size=4)
plain = st.one_of(
    st.integers(-99, 99), st.booleans(), st.floats(allow_nan=False, width=16), st.text("a\"\\#]},=\n'", max_size=5)
)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
tables = st.dictionaries(keys, st.one_of(values, st.dictionaries(keys, values, max_size=3)), max_size=4)


def leaves(value: Any, path: tuple = ()) -> dict:
    if isinstance(value, dict):
        return {key: leaf for name, part in value.items() for key, leaf in leaves(part, (*path, name)).items()}
    inside = (
        {key: leaf for place, part in enumerate(value) for key, leaf in leaves(part, (*path, place)).items()}
        if isinstance(value, list)
        else {}
    )
    return {path: value} | inside


@given(tables, st.sampled_from([tomli_w.dumps, lambda data: tomli_w.dumps(data, multiline_strings=True)]))
def test_the_literal_at_a_place_is_the_value(data: dict, write: Any) -> None:
    text = write(data)
    found = places(text)
    for path, value in leaves(tomllib.loads(text)).items():
        place = found[path]
        assert tomllib.loads(f"v = {text[place.start : place.end]}")["v"] == value
        assert place.line == text.count("\n", 0, place.start) + 1


def test_by_hand() -> None:
    text = 'a."b c".d = [1, [2,\r\n 3], {x = 1, y = "q]"}] # c\n[[t]]\nz=1\n[[t]]\nz= 2 \n[t.u]\n'
    text += 'k="""a\n"b\\""""\nl = \'\'\'it\'s\'\'\'\n'
    found = {path: (place.line, text[place.start : place.end]) for path, place in places(text).items()}
    assert found["a", "b c", "d", 1, 1] == (2, "3")
    assert found["a", "b c", "d", 2, "y"] == (2, '"q]"')
    assert found["t", 0, "z"] == (4, "1")
    assert found["t", 1, "z"] == (6, "2")
    assert found["t", 1, "u", "k"] == (8, '"""a\n"b\\""""')
    assert found["t", 1, "u", "l"] == (10, "'''it's'''")
    assert TomlDocument("t", text).line(("t", 1, "nothing")) == 5
    assert TomlDocument("t", text).line(("nowhere",)) == 1


gaps = st.sampled_from(["", " ", "\t", "\r\n", "\n\n", " # ] } , \" '''\n"])
literals = st.sampled_from(
    ["1_000", "0xff", "-inf", "nan", "1979-05-27 07:32:00", '""', "'\\'", '"\\"#"', '""""a""""', "'''\n]'''", '"\\\\"']
)


@st.composite
def spaced(draw: Any, depth: int = 3) -> str:
    """A literal as no writer would lay it out: blanks, comments and line ends wherever they may stand."""
    if not depth or draw(st.booleans()):
        return draw(literals)
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
    found = places(written)
    for path, value in leaves(tomllib.loads(written)).items():
        assert path in found or isinstance(value, list | dict)
        if path in found and not written.startswith(("[T", "[[L", "[ L"), found[path].start):
            literal = written[found[path].start : found[path].end]
            assert repr(tomllib.loads(f"v = {literal}")["v"]) == repr(value)
