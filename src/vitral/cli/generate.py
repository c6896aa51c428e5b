"""vitral generate: text written by a run."""

import io
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitral.cli.options import (
    DeviceName,
    DeviceOption,
    DtypeOption,
    Format,
    FormatOption,
    Precision,
    ReplaceOption,
    RunArgument,
    Which,
    WhichOption,
)
from vitral.core.errors import UsageError
from vitral.core.language import _

if TYPE_CHECKING:
    from vitral.decoding import Sample
    from vitral.lab import Run


def generate(
    context: typer.Context,
    run: RunArgument,
    prompt: Annotated[str, typer.Option(help="Text to continue.  [default: empty, the beginning of a line]")] = "",
    max_tokens: Annotated[int, typer.Option(min=0, help="Tokens to generate at most.")] = 400,
    num_samples: Annotated[int, typer.Option("--samples", min=1, help="Number of texts to generate.")] = 1,
    temperature: Annotated[
        float, typer.Option(min=0, help="Sampling temperature: 0 is greedy, lower is less random.")
    ] = 0.8,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Top-k sampling: keep the k most probable tokens.  [default: off]")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Nucleus sampling: keep the smallest set of tokens with total probability p.  [default: off]",
        ),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Drop tokens below p times the highest probability.  [default: off]"),
    ] = None,
    repetition_penalty: Annotated[float, typer.Option(min=0, help="Penalize repeated tokens; 1 is off.")] = 1.0,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Always take the most probable token; the same as --temperature 0.")
    ] = False,
    num_beams: Annotated[
        int | None,
        typer.Option("--beams", min=1, help="Beam search with this many beams instead of sampling.  [default: off]"),
    ] = None,
    length_penalty: Annotated[
        float, typer.Option(min=0, max=10, help="Beam search: above 0 favours longer texts.")
    ] = 0.0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this string; repeatable.  [default: none]")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random choices.")] = 0,
    crop: Annotated[
        bool, typer.Option("--crop", help="Shorten a prompt longer than the context to its end.  [default: refuse it]")
    ] = False,
    replace: ReplaceOption = None,
    use_cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Keep keys and values between tokens.")] = True,
    stats: Annotated[
        bool, typer.Option("--stats", help="Also print the speed to standard error, and whether it ran in C.")
    ] = False,
    checkpoint: WhichOption = Which.best,
    device: DeviceOption = DeviceName.cpu,
    dtype: DtypeOption = Precision.float32,
    format: FormatOption = Format.text,
) -> None:
    """Generate text with a run."""
    from vitral.lab import Generation, Run

    if num_beams is not None and num_samples > num_beams:
        raise UsageError("--samples {n}: there are at most as many as --beams {beams}", n=num_samples, beams=num_beams)
    # The parameters above are named as the fields of Generation.
    options = {name: value for name, value in context.params.items() if name in Generation.model_fields}
    options |= {"stop": tuple(stop or ()), "temperature": 0.0 if greedy else temperature}
    loaded = Run(run, checkpoint.value, device=device.value, dtype=dtype.value)
    _require_known(loaded, prompt, replace)
    if format is Format.text and num_samples == 1 and num_beams is None and not stats:
        _stream(loaded, prompt, options)
        return
    began = time.perf_counter()
    samples = loaded.samples([prompt], **options)
    seconds = time.perf_counter() - began
    if format is Format.json:
        from vitral.cli.screen import print_json

        print_json([asdict(sample) for sample in samples])
    else:
        _print_samples(samples)
    if stats:
        _print_stats(loaded, samples, seconds, use_cache)


def _require_known(run: "Run", prompt: str, replacement: str | None) -> None:
    from vitral.data import UnseenCharacter

    try:
        run.encode(prompt, replace=replacement)
    except UnseenCharacter as error:
        raise UsageError(
            '--prompt: {where} is not in {alphabet}; remove it, or replace such characters: --replace " "',
            where=error.where,
            alphabet=error.alphabet,
        ) from None


def _stream(run: "Run", prompt: str, options: dict[str, Any]) -> None:
    pieces = run.stream(prompt, **options)
    _write(run.readable(prompt, options["replace"]))
    for piece in pieces:
        _write(piece)
    _write("\n")


def _write(text: str) -> None:
    """Write a model's text: exactly and in UTF-8, but on a terminal with its control characters visible."""
    from vitral.figures.text import visible

    stream = sys.stdout
    if stream.isatty():
        text = visible(text)
    elif isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors=stream.errors, newline="")
    stream.write(text)
    stream.flush()


def _print_stats(run: "Run", samples: list["Sample"], seconds: float, use_cache: bool) -> None:
    from vitral.core.language import _

    tokens = sum(len(sample.tokens) for sample in samples)
    way = run.generation_way(use_cache=use_cache)
    how = _("in C ({found})", found=way.found) if way.is_in_c else _("by PyTorch: {found}", found=_(way.found))
    line = _(
        "{tokens:,} tokens in {seconds:.3f} s, {rate:,.0f} tokens/s, {how}",
        tokens=tokens,
        seconds=seconds,
        rate=tokens / max(seconds, 1e-9),
        how=how,
    )
    sys.stderr.write(line + "\n")


def _print_samples(samples: list["Sample"]) -> None:
    for place, sample in enumerate(samples, start=1):
        if len(samples) > 1:
            score = "" if sample.score is None else f", {_('log-probability {score:.3f}', score=sample.score)}"
            _write(f"--- {_('{n} of {all}', n=place, all=len(samples))}{score}\n")
        _write(f"{sample.prompt}{sample.text}\n")
