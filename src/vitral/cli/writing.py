"""How `vitral generate` writes: a stream, several samples, or beams."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitral.api import Run
from vitral.cli.screen import print_json, say
from vitral.core.devices import DtypeName
from vitral.core.errors import UsageError
from vitral.data import UnseenCharacter
from vitral.decoding import GenerateOptions, Sample
from vitral.figures.text import visible


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    prompt: str
    max_tokens: int
    num_samples: int
    sampling: dict[str, Any]
    num_beams: int | None
    length_penalty: float
    stop: tuple[str, ...]
    seed: int
    crop: bool
    replacement: str | None
    use_cache: bool
    as_json: bool


def write(path: Path, which: str, request: Request, *, device: str, dtype: DtypeName) -> None:
    """Write what was asked for, one sample as it comes.

    Raises:
        UsageError: a value that cannot be.
    """
    run = Run(path, which, device=device, dtype=dtype)
    prompt = readable_prompt(run, request)
    if request.num_beams is not None:
        n_best = request.num_samples
        samples = run.beam(
            prompt,
            max_tokens=request.max_tokens,
            num_beams=request.num_beams,
            length_penalty=request.length_penalty,
            n_best=n_best,
            stop=request.stop,
        )
    elif request.num_samples == 1 and not request.as_json and not request.crop and request.use_cache:
        _stream(run, prompt, request)
        return
    else:
        options = GenerateOptions.parse(
            {"num_samples": request.num_samples, "crop": request.crop, "use_cache": request.use_cache}, "generate"
        )
        samples = run.samples(
            [prompt],
            max_tokens=request.max_tokens,
            seed=request.seed,
            stop=request.stop,
            options=options,
            **request.sampling,
        )
    _print_samples(samples, request)


def readable_prompt(run: Run, request: Request) -> str:
    """The prompt, with characters the model has never seen replaced if that was asked for.

    Raises:
        UsageError: an unseen character, named, and how to replace it.
    """
    try:
        ids = run.tokenizer.encode(request.prompt, replacement=request.replacement)
    except UnseenCharacter as error:
        raise UsageError(f'--prompt: {error}; or --replace " " puts a space in its place') from None
    return request.prompt if request.replacement is None else run.tokenizer.decode(ids)


def _stream(run: Run, prompt: str, request: Request) -> None:
    pieces = run.stream(prompt, max_tokens=request.max_tokens, seed=request.seed, stop=request.stop, **request.sampling)
    sys.stdout.write(visible(prompt))
    for piece in pieces:
        sys.stdout.write(visible(piece))
        sys.stdout.flush()
    sys.stdout.write("\n")


def _print_samples(samples: list[Sample], request: Request) -> None:
    if request.as_json:
        print_json([asdict(sample) for sample in samples])
        return
    for number, sample in enumerate(samples, start=1):
        if len(samples) > 1:
            score = "" if sample.score is None else f", log-probability {sample.score:.3f}"
            say(f"--- {number} of {len(samples)}{score}")
        say(sample.prompt + sample.text)
