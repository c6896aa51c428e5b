"""Pages and Markdown: whatever the text is, it is shown and never obeyed."""

import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tags import tags

from vitral.report.html import inline_svg, page
from vitral.report.lines import Line, loss_plot
from vitral.report.markdown import escape, fence, markdown
from vitral.report.sections import (
    Callout,
    Columns,
    Details,
    Figure,
    Heading,
    Listing,
    Paragraph,
    Preformatted,
    Section,
    Table,
)
from vitral.report.style import drawn_bytes

NASTY = '<script>alert(1)</script> & "quotes" \' `ticks` | *stars* \x1b[31m \u202e'
VOID = {"meta", "br", "hr", "img", "link", "input"}


def svg() -> str:
    """A small real figure."""
    return drawn_bytes(loss_plot([Line("a < b & c", [1, 2], [2.0, 1.0])])).decode()


def every_kind(text: str) -> list[Section]:
    """One section of each kind, all saying `text`."""
    return [
        Heading(text),
        Paragraph(text),
        Callout(text),
        Listing((text, "two")),
        Table(text, ("name", text), ((text, "1.5"),)),
        Figure(svg(), text, text, "figures/a.svg"),
        Preformatted(text, text),
        Columns((Preformatted(text, text), Preformatted("other", "b"))),
        Details(text, (Paragraph(text), Heading(text, 3))),
    ]


def read(html: str) -> list[tuple[str, dict[str, str]]]:
    """The tags of a page, each of which ends where it should."""
    open_ = list[str]()
    for ends, tag, alone in re.findall(r"<(/?)([a-zA-Z][\w:-]*)[^>]*?(/?)>", html):
        if ends:
            assert open_.pop() == tag
        elif not alone and tag not in VOID:
            open_.append(tag)
    assert not open_
    return tags(html)


def targets(html: str) -> set[str]:
    """What a page links to or shows."""
    return {given[key] for _, given in read(html) for key in ("href", "xlink:href", "src") if key in given}


def test_a_page_is_well_formed_escaped_and_asks_nothing_of_the_network() -> None:
    html = page(NASTY, every_kind(NASTY), lead=NASTY, footer=NASTY)
    assert "script" not in dict(read(html))
    assert all(target.startswith(("#", "data:image/")) for target in targets(html))
    assert "default-src 'none'" in html
    assert not re.search(r"url\((?!#)", html)
    assert not re.search(r"@import|https?://(?!www\.w3\.org/)", html)
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert unescape(re.sub("<[^>]*>", "", html)).count("<script>alert(1)</script>") >= 15


def test_a_page_can_be_read_without_seeing_it() -> None:
    html = page("Title", every_kind("hello"), language="pt")
    assert '<html lang="pt-BR">' in html
    assert 'role="img" aria-label="hello"' in html
    assert '<th scope="col">name</th>' in html
    assert '<th scope="row">hello</th>' in html
    assert "<caption>hello</caption>" in html
    assert html.count("<h1>") == 1


def test_ids_are_unique_even_with_twins_of_figures_and_headings() -> None:
    html = page("t", [*every_kind("same"), *every_kind("same"), Heading("a"), Heading("???")])
    ids = [given["id"] for _, given in read(html) if "id" in given]
    assert len(ids) == len(set(ids))
    assert {target[1:] for target in targets(html) if target.startswith("#")} <= set(ids)


def test_contents_list_the_headings_of_the_second_level() -> None:
    html = page("t", [Heading("One"), Heading("Two"), Heading("Inside", 3), Heading("Çedilha três")])
    contents = html[html.index("<nav") : html.index("</nav>")]
    assert re.findall(r'href="#([^"]+)">([^<]+)<', contents) == [
        ("one", "One"),
        ("two", "Two"),
        ("cedilha-tres", "Çedilha três"),
    ]
    assert "<nav" not in page("t", [Heading("One")])


def test_figures_follow_the_page_into_the_dark() -> None:
    inside = inline_svg(svg(), "f1")
    assert inside.startswith("<svg ")
    assert "var(--ink)" in inside
    assert "#1b1f24" not in inside
    assert "<style" not in inside
    assert all(name.startswith("f1-") for name in re.findall(r'\bid="([^"]+)"', inside))
    assert set(re.findall(r"url\(#([^)]+)\)", inside)) <= set(re.findall(r'\bid="([^"]+)"', inside))


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_makes_a_well_formed_page_that_can_be_written(text: str) -> None:
    html = page(text, [Heading(text), Preformatted(text, text), Table(text, ("a",), ((text,),))])
    html.encode("utf-8")
    assert "script" not in dict(read(html))


def test_preformatted_text_keeps_its_first_newline() -> None:
    assert '<pre tabindex="0">\n\nsecond line</pre>' in page("t", [Preformatted("\nsecond line")])


def test_markdown_has_every_part() -> None:
    text = markdown("Title", every_kind("hello"), lead="lead", footer="end")
    for part in (
        "# Title", "## hello", "> hello", "- hello\n- two", "| name | hello |\n| --- | ---: |\n| hello | 1.5 |",
        "![hello](figures/a.svg)", "```text\nhello\n```", "<details>\n<summary>hello</summary>", "---\n\nend\n",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("plain", "written"),
    [
        ("a_b*c", r"a\_b\*c"),
        ("# no heading", r"\# no heading"),
        ("1. no list", r"1\. no list"),
        ("- no list", r"\- no list"),
        ("+ no list", r"\+ no list"),
        ("text\n---", "text\n\\---"),
        ("+0.77 and 1.5 stay", "+0.77 and 1.5 stay"),
        ("1.5", "1.5"),
        ("<b>&amp;", r"\<b\>\&amp;"),
        ("[x](y)", r"\[x\](y)"),
        ("\N{MINUS SIGN}0.5", "\N{MINUS SIGN}0.5"),
    ],
)
def test_markdown_escapes(plain: str, written: str) -> None:
    assert escape(plain) == written


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    assert fence("a ```` b").startswith("`````text\n")
    assert fence("a\n") == "```text\na\n```"
