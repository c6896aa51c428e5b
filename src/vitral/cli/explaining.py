"""Commands that show and check computations: explain, check."""

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.options import Device, DeviceOption, Dtype, DtypeOption, Format, FormatOption, Which, WhichOption
from vitral.core.errors import UsageError

if TYPE_CHECKING:
    from vitral.explain import Example, Tiny, Walkthrough


class Form(enum.StrEnum):
    """In which form a walkthrough is written."""

    text = "text"
    markdown = "markdown"
    html = "html"
    json = "json"
    latex = "latex"


class Language(enum.StrEnum):
    """In which language."""

    en = "en"
    pt = "pt"


LanguageOption = Annotated[Language, typer.Option("--lang", help="English or Portuguese.")]


WhatArgument = Annotated[
    str | None,
    typer.Argument(metavar="[EXAMPLE.toml | NAME | RUN]", help="A worked example, by file or name, or a run."),
]
TextOption = Annotated[str, typer.Option(help="Of a run: what the model reads.")]
LayerOption = Annotated[str, typer.Option(help="Of a run: which blocks, as 0 or 0,1 or all.")]
HeadOption = Annotated[str | None, typer.Option(help="Which heads, as 0 or 0,1 or all; examples count from 1.")]
QueryOption = Annotated[int | None, typer.Option(help="The position whose query is worked out; else the last.")]
KeyOption = Annotated[int | None, typer.Option(help="The position it is worked out with; else the one it sees most.")]
ColumnOption = Annotated[int | None, typer.Option(help="The feature that is worked out; else the first.")]
BlockOption = Annotated[
    bool, typer.Option("--block", help="Of a run: embeddings and the whole block, not attention alone.")
]
EndingOption = Annotated[bool, typer.Option("--ending", help="Of a run: logits, probabilities and the choice, too.")]
DigitsOption = Annotated[int, typer.Option(help="Digits after the point.", min=0, max=12)]
FormOption = Annotated[Form, typer.Option("--format", help="In which form.")]
FileOption = Annotated[Path | None, typer.Option(help="Write to this file instead of the screen.")]
TinyOption = Annotated[bool, typer.Option("--tiny", help="A case to be done by hand, of small whole numbers.")]
ExerciseOption = Annotated[
    Path | None, typer.Option(help="With --tiny: write it to this file, to be filled in and checked.")
]


def explain(
    what: WhatArgument = None,
    text: TextOption = "To be",
    layer: LayerOption = "0",
    head: HeadOption = None,
    query: QueryOption = None,
    key: KeyOption = None,
    column: ColumnOption = None,
    block: BlockOption = False,
    ending: EndingOption = False,
    digits: DigitsOption = 3,
    lang: LanguageOption = Language.en,
    format: FormOption = Form.text,
    out: FileOption = None,
    tiny: TinyOption = False,
    exercise: ExerciseOption = None,
    positions: Annotated[int, typer.Option(help="With --tiny: how many tokens.")] = 3,
    d_model: Annotated[int, typer.Option(help="With --tiny: how wide.")] = 4,
    num_heads: Annotated[int, typer.Option(help="With --tiny: how many heads.")] = 1,
    mask: Annotated[str, typer.Option(help="With --tiny: causal or bidirectional.")] = "causal",
    scale: Annotated[str, typer.Option(help="With --tiny: none, sqrt or linear.")] = "sqrt",
    seed: Annotated[int, typer.Option(help="With --tiny: of its numbers.")] = 1,
    checkpoint: WhichOption = Which.best,
    device: DeviceOption = Device.cpu,
    dtype: DtypeOption = Dtype.float32,
) -> None:
    """Show a computation in numbers, step by step: a worked example, a run on a text, or a tiny case."""
    from vitral.explain import Choice, Tiny, View, walk_example

    _check_wishes(what, tiny, exercise)
    run = what is not None and Path(what).is_dir()
    first = 0 if run else 1
    heads = _several("--head", head if head is not None else ("0" if run else "all"), first)
    query, key, column = (None if place is None else place - first for place in (query, key, column))
    choice = Choice(heads, query, key, column or 0)
    if tiny:
        made = _tiny(Tiny(positions, d_model, num_heads, mask, scale, seed), exercise)
        if made is None:
            return
        walkthrough = walk_example(made, choice, lang.value)
    elif run:
        from vitral.api import Run

        view = View(_several("--layer", layer, 0), choice, block=block, ending=ending, language=lang.value)
        walkthrough = Run(str(what), checkpoint.value, device=device.value, dtype=dtype.value).explain(text, view)
    else:
        from vitral.api.explaining import find_example

        walkthrough = walk_example(find_example(str(what)), choice, lang.value)
    _write(walkthrough, format, digits, out)


def _check_wishes(what: str | None, tiny: bool, exercise: Path | None) -> None:
    """Refuse to guess what is to be explained.

    Raises:
        UsageError: nothing, or two things.
    """
    if (what is None) != tiny:
        known = "an EXAMPLE.toml, a name of the gallery (vitral check --list), a RUN, or --tiny"
        raise UsageError(f"explain: say what: {known}")
    if exercise is not None and not tiny:
        raise UsageError("explain: --exercise goes with --tiny")


def _tiny(case: "Tiny", exercise: Path | None) -> "Example | None":
    """The case to be told; none where it was written to be filled in."""
    from vitral.api.explaining import make_tiny
    from vitral.cli.screen import say

    made = make_tiny(case, exercise)
    if exercise is None:
        return made
    say(f"written: {exercise}\nfill in the question marks, then: vitral check {exercise}")
    return None


def _several(option: str, given: str, first: int) -> tuple[int, ...] | None:
    """Numbers from the command line, from 0; None for all."""
    if given == "all":
        return None
    try:
        return tuple(dict.fromkeys(int(part) - first for part in given.split(",")))
    except ValueError:
        raise UsageError(f"{option} {given}: expected numbers as 0 or 0,1, or all") from None


def _write(walkthrough: "Walkthrough", form: Form, digits: int, out: Path | None) -> None:
    """In one form, to the screen or to a file that is not there yet."""
    import json

    from vitral.api.explaining import write_new
    from vitral.cli.screen import say
    from vitral.cli.walking import print_walkthrough
    from vitral.explain import to_latex, to_markdown, to_page, to_plain, to_text

    if out is None and form is Form.text:
        print_walkthrough(walkthrough, digits)
        return
    writers = {Form.text: to_text, Form.markdown: to_markdown, Form.html: to_page, Form.latex: to_latex}
    if form is Form.json:
        written = json.dumps(to_plain(walkthrough, digits=digits), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        written = writers[form](walkthrough, digits=digits)
    if out is not None:
        say(f"written: {write_new(out, written if written.endswith(chr(10)) else written + chr(10))}")
    else:
        sys.stdout.write(written)


def check(
    examples: Annotated[
        list[str] | None, typer.Argument(metavar="EXAMPLE.toml…", help="Worked examples, by file or name.")
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Write the corrected example as NAME.fixed.toml beside it.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="With --fix: the folder to write to.")] = None,
    lang: LanguageOption = Language.en,
    format: FormatOption = Format.text,
    list_: Annotated[bool, typer.Option("--list", help="List the worked examples that come along.")] = False,
) -> None:
    """Compare the numbers of worked examples with what is true: which is wrong first, and why.

    Exit code 0 when nothing is worse than rounding, 1 when something is wrong, 2 when a file cannot be read; the
    others are checked all the same.
    """
    from vitral.cli.checking import check_all, print_gallery
    from vitral.explain import phrases

    if list_:
        print_gallery()
        return
    if not examples:
        raise UsageError("check: say which examples, by file or by name (vitral check --list)")
    if out is not None and not fix:
        raise UsageError("check: --out goes with --fix")
    code = check_all(examples, phrases(lang.value), as_json=format is Format.json, fix_into=(fix, out))
    if code:
        raise typer.Exit(code)
