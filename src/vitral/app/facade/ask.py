"""Questions to a run: `generate`, `evaluate`, `inspect`; and the run itself: `load`."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Interval

from vitral.app.arguments import (
    Argument,
    Callback,
    Count,
    Natural,
    Option,
    Paths,
    RunIn,
    RunLike,
    Share,
    Text,
    Weight,
    WhereRun,
    Which,
    opened,
    validated,
)
from vitral.core.errors import UsageError

if TYPE_CHECKING:
    from vitral.app.results import Inspection, Samples
    from vitral.app.run import Run
    from vitral.evaluation.measures import Measures, TextMeasures

SAMPLE_TOKENS = 1000
"""Of the text in which copies are looked for."""


@validated
def generate(
    run: RunLike,
    prompt: Annotated[str, Option()] = "",
    *,
    max_tokens: Natural = 400,
    num_samples: Annotated[Count, Option("--samples")] = 1,
    temperature: Weight = 0.8,
    top_k: Count | None = None,
    top_p: Share | None = None,
    min_p: Share | None = None,
    repetition_penalty: Weight = 1.0,
    greedy: bool = False,
    num_beams: Annotated[Count | None, Option("--beams")] = None,
    length_penalty: Annotated[float, Interval(ge=0, le=10)] = 0.0,
    stop: Annotated[str | Sequence[str], Option(parsed=list[str])] = (),
    seed: Natural = 0,
    crop: bool = False,
    replace: str | None = None,
    use_cache: Annotated[bool, Option("--cache/--no-cache")] = True,
    checkpoint: Which = None,
    device: WhereRun = None,
    dtype: RunIn = None,
    on_text: Callback | None = None,
) -> "Samples":
    """Generate text with a run.

    Args:
        run: Folder of a run.
        prompt: Text to continue.  [default: empty, the beginning of a line]
        max_tokens: Tokens to generate at most.
        num_samples: Number of texts to generate.
        temperature: Sampling temperature: 0 is greedy, lower is less random.
        top_k: Top-k sampling: keep the k most probable tokens.  [default: off]
        top_p: Nucleus sampling: keep the smallest set of tokens with total probability p.  [default: off]
        min_p: Drop tokens below p times the highest probability.  [default: off]
        repetition_penalty: Penalize repeated tokens; 1 is off.
        greedy: Always take the most probable token; the same as --temperature 0.
        num_beams: Beam search with this many beams instead of sampling.  [default: off]
        length_penalty: Beam search: above 0 favours longer texts.
        stop: End before this string; repeatable.  [default: none]
        seed: Seed of the random choices.
        crop: Shorten a prompt longer than the context to its end.  [default: refuse it]
        replace: Character to put in place of ones the model has never seen.  [default: refuse them]
        use_cache: Keep keys and values between tokens.
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.
        device: Device to run the model on.
        dtype: Precision to run the model in.
        on_text: Python only: called with the pieces of a single sampled text as it is made; the result is then empty.

    Note:
        A loaded run is taken as it is unless checkpoint, device or dtype is given.

    Raises:
        UsageError: not a run, an invalid option, a character the model has never seen, or a prompt that is too long.
    """
    from vitral.app.results import Samples
    from vitral.data import UnseenCharacter
    from vitral.decoding import GenerateOptions, Sampling, beam_search, stream, way_of
    from vitral.decoding import generate as sampled
    from vitral.decoding.text import check_stop

    if num_beams is not None and num_samples > num_beams:
        raise UsageError("--samples {n}: there are at most as many as --beams {beams}", n=num_samples, beams=num_beams)
    check_stop(stop)
    loaded = opened(run, checkpoint, device, dtype)
    loaded.sealed.require_causal_lm()
    kept = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty}
    chosen = {
        "sampling": Sampling.parse({"temperature": 0.0 if greedy else temperature, **kept}, "generate"),
        "options": GenerateOptions(num_samples=num_samples, crop=crop, use_cache=use_cache),
        "seed": seed,
    }
    model, tokenizer, began = loaded.model, loaded.tokenizer, time.perf_counter()
    how: dict[str, Any] = {"max_tokens": max_tokens, "stop": tuple(stop)}
    with loaded.in_precision():
        try:
            text = loaded.readable(prompt, replace)
            if num_beams is not None:
                how |= {"num_beams": num_beams, "length_penalty": length_penalty, "n_best": num_samples}
                found = beam_search(model, tokenizer, text, **how)
            elif on_text is None or num_samples > 1:
                found = sampled(model, tokenizer, [text], **how, **chosen)
            else:
                pieces, found = stream(model, tokenizer, text, **how, **chosen), []
                on_text(text)
                for piece in pieces:
                    on_text(piece)
        except UnseenCharacter as error:
            raise UsageError(
                '--prompt: {where} is not in {alphabet}; remove it, or replace such characters: --replace " "',
                where=error.where,
                alphabet=error.alphabet,
            ) from None
        way = way_of(model, use_cache=use_cache)
    return Samples(str(loaded.path), loaded.step, tuple(found), time.perf_counter() - began, way)


@validated
def evaluate(
    run: RunLike,
    *,
    text: Text | None = None,
    replace: str | None = None,
    corpus: Text | None = None,
    checkpoint: Which = None,
    device: WhereRun = None,
    dtype: RunIn = None,
    copying: Annotated[bool | None, Option("--copying/--no-copying")] = None,
) -> "Measures | TextMeasures":
    """Measure a run: loss, perplexity, bits, copying.

    The n-gram baselines of the same text are listed beside them. With --text, any run is measured on any text.

    Args:
        run: Folder of a run.
        text: Measure the loss on this text: a file, a folder or a name.  [default: the run's own text]
        replace: Character to put in place of ones the model has never seen.  [default: refuse them]
        corpus: The run's text, if it is no longer where it was: a file, a folder, a name.
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.
        device: Device to run the model on.
        dtype: Precision to run the model in.
        copying: Measure how much of a sample is copied from the training text.  [default: copying]

    Raises:
        UsageError: not a run, its text cannot be found or has changed, or two arguments exclude each other.
    """
    if text is None and replace is not None:
        raise UsageError(
            "--replace is for a text that the run has not seen: give it with --text, or leave --replace out"
        )
    if text is not None and (corpus, copying) != (None, None):
        raise UsageError(
            "--text measures one text alone: leave out --corpus and --copying, which are for the run's own text"
        )
    from vitral.evaluation import evaluate_split, training_text
    from vitral.evaluation.measures import Copying, Measures, TextMeasures, loss_on_text

    loaded = opened(run, checkpoint, device, dtype, corpus)
    folder, step, masking = str(loaded.path), loaded.step, loaded.masking
    with loaded.in_precision():
        if text is not None:
            name, loss, is_changed = loss_on_text(loaded.model, loaded.tokenizer, text, masking, replace)
            return TextMeasures(folder, step, name, loss, is_changed)
        splits = loaded.dataset().splits
        losses = {
            part: evaluate_split(loaded.model, splits[part], loaded.tokenizer, masking=masking)
            for part in ("validation", "test")
        }
    copied = None
    if copying is not False and masking is None:
        copied = Copying.of(loaded.generate(max_tokens=SAMPLE_TOKENS), training_text(loaded.dataset()))
    problems = tuple(loaded.sealed.document("corpus").get("problems", ()))
    return Measures(folder, step, losses, loaded.ngram_baselines(), copied, masking is not None, problems)


@validated
def inspect(
    run: RunLike,
    text: Annotated[str, Option()],
    *,
    replace: str | None = None,
    windows: Count | None = None,
    top: Count = 5,
    edits: Annotated[Any, Option(metavar="FILE|JSON", parsed=str)] = (),
    corpus: Text | None = None,
    checkpoint: Which = None,
    device: WhereRun = None,
    dtype: RunIn = None,
) -> "Inspection":
    """Look inside a run on one text.

    Shows attention maps, head kinds, ablations, logit lens and residual norms.

    Args:
        run: Folder of a run.
        text: Text the model reads.
        replace: Character to put in place of ones the model has never seen.  [default: refuse them]
        windows: Windows of the test split to measure ablations and head kinds on.  [default: the text]
        top: Tokens that the logit lens lists at each position.
        edits: Also show what edits inside the model change, as in '[{"at": "blocks.1.attn.z", "heads": [3], "do":
            "zero"}]'.
        corpus: The run's text, if it is no longer where it was: a file, a folder, a name.
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.
        device: Device to run the model on.
        dtype: Precision to run the model in.

    Raises:
        UsageError: not a run, an empty text, one longer than the context, or an unseen character.
    """
    from vitral.app.results import Inspection
    from vitral.inspection import inspect_text
    from vitral.inspection.edit_data import edits_of, read_edits

    loaded = opened(run, checkpoint, device, dtype, corpus)
    text, made = loaded.readable(text, replace), edits_of(read_edits(edits) if isinstance(edits, str) else edits)
    part = None if windows is None else loaded.dataset().splits["test"]
    how = {"part": part, "windows": windows, "top": top, "edits": made, "masking": loaded.masking}
    with loaded.in_precision():
        found = inspect_text(loaded.model, loaded.tokenizer, text, **how)
    return Inspection({"run": str(loaded.path), "step": loaded.step} | found)


@validated
def load(
    path: Annotated[Paths, Argument("RUN")],
    which: Literal["best", "last"] = "best",
    *,
    device: str = "cpu",
    corpus: Paths | None = None,
) -> "Run":
    """Load a run's "best" or "last" checkpoint; see `Run`.

    Args:
        path: the run's folder.
        which: "best" or "last".
        device: "auto", "cpu", "cuda" or "mps".
        corpus: the run's text, if it is no longer where it was: a file, a folder or a name.
    """
    from vitral.app.run import Run

    return Run(path, which, device=device, corpus=corpus)
