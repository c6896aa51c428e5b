"""Commands that use a trained model: evaluate, generate."""

from typing import Annotated

import typer

from vitral.cli.options import (
    Device,
    DeviceOption,
    Dtype,
    DtypeOption,
    Format,
    FormatOption,
    RunArgument,
    Which,
    WhichOption,
)


def evaluate(
    run: RunArgument,
    checkpoint: WhichOption = Which.best,
    device: DeviceOption = Device.cpu,
    dtype: DtypeOption = Dtype.float32,
    copying: Annotated[
        bool, typer.Option(help="Also look how much of a sample is copied from the training text.")
    ] = True,
    format: FormatOption = Format.text,
) -> None:
    """Measure a run: loss, perplexity, bits, the n-gram lines, copying."""
    from vitral.api.measuring import measure
    from vitral.cli.measuring import print_measures
    from vitral.cli.screen import print_json

    measures = measure(run, checkpoint.value, device=device.value, dtype=dtype.value, copying=copying)
    if format is Format.json:
        print_json(measures.plain())
    else:
        print_measures(measures)


def generate(
    run: RunArgument,
    prompt: Annotated[str, typer.Option(help="Text to continue; empty: the beginning of a line.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Tokens to write.")] = 400,
    samples: Annotated[int, typer.Option(help="How many texts.")] = 1,
    temperature: Annotated[float, typer.Option(help="0 is greedy; below 1 surer, above 1 wilder.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Choose among the k likeliest.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Choose among the likeliest that make up this probability.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Choose among those at least this share as likely as the first.")
    ] = None,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: less of what has been said.")] = 1.0,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Always the likeliest; the same as --temperature 0.")
    ] = False,
    beams: Annotated[int | None, typer.Option(help="Beam search with so many beams.")] = None,
    length_penalty: Annotated[float, typer.Option(help="Beam search: above 0 favours longer texts.")] = 0.0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this string; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choices.")] = 0,
    crop: Annotated[bool, typer.Option("--crop", help="Cut a prompt longer than the context to its end.")] = False,
    replace: Annotated[str | None, typer.Option(help="Put this character for ones the model has never seen.")] = None,
    cache: Annotated[bool, typer.Option(help="Keep keys and values between tokens.")] = True,
    checkpoint: WhichOption = Which.best,
    device: DeviceOption = Device.cpu,
    dtype: DtypeOption = Dtype.float32,
    format: FormatOption = Format.text,
) -> None:
    """Write text with a run."""
    from vitral.cli.writing import Request, write

    request = Request(
        prompt=prompt,
        max_tokens=max_tokens,
        num_samples=samples,
        sampling={
            "temperature": 0.0 if greedy else temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
        },
        num_beams=beams,
        length_penalty=length_penalty,
        stop=tuple(stop or ()),
        seed=seed,
        crop=crop,
        replacement=replace,
        use_cache=cache,
        as_json=format is Format.json,
    )
    write(run, checkpoint.value, request, device=device.value, dtype=dtype.value)
