"""Questions to a run: `generate`, `chat`, `fill`, `evaluate`, `why`, `inspect`; and the run itself: `load`."""

import time
from collections.abc import Sequence
from dataclasses import replace as changed
from itertools import chain
from pathlib import Path
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
    given,
    lines,
    opened,
    path_of,
    validated,
)
from vitral.core.errors import UsageError

if TYPE_CHECKING:
    from vitral.app.conversation import Conversation
    from vitral.app.results import FilledGaps, Inspection, Samples
    from vitral.app.run import Run
    from vitral.doctor.sample import WhySample
    from vitral.evaluation.measures import Measures, TextMeasures

SAMPLE_TOKENS = 1000
"""Of the text in which copies are looked for."""


@validated
def generate(
    run: RunLike,
    prompt: Annotated[str, Option()] = "",
    *,
    source: Annotated[str | Sequence[str], Option(metavar="TEXT|@FILE", parsed=list[str], read=lines)] = (),
    max_tokens: Natural = 400,
    num_samples: Annotated[Count, Option("--samples")] = 1,
    temperature: Weight | None = None,
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
        prompt: Text to continue; of a run of chats a message to answer.  [default: empty, the beginning of a line]
        source: Of a run of pairs, labels or chats: text to answer, or @ and a file with one on each line; repeatable.
        max_tokens: Tokens to generate at most.
        num_samples: Number of texts to generate.
        temperature: Sampling temperature: 0 is greedy, lower is less random.  [default: 0.8, of a source 0]
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
    from vitral.data.answers import ANSWER
    from vitral.decoding import GenerateOptions, Sampling, asking, beam_search, stream, way_of
    from vitral.decoding import generate as sampled
    from vitral.decoding.text import check_stop

    if num_beams is not None and num_samples > num_beams:
        raise UsageError("--samples {n}: there are at most as many as --beams {beams}", n=num_samples, beams=num_beams)
    check_stop(stop)
    kept = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    loaded, began = opened(run, checkpoint, device, dtype), time.perf_counter()
    model, tokenizer, sources = loaded.model, loaded.tokenizer, [source] if isinstance(source, str) else list(source)
    is_chat = loaded.sealed.config.corpus.records == "chats" and ANSWER not in prompt
    if not model.config.num_labels:
        loaded.sealed.require_causal_lm()
    if is_chat and prompt and not sources:  # a first message; a whole chat is written with its special tokens
        sources, prompt = [prompt], ""
    if sources or is_chat or model.encoder is not None or model.config.num_labels:
        _require_sources(loaded, sources, prompt)
    if model.config.num_labels:
        tuned = {"samples": num_samples > 1, "beams": num_beams, "temperature": temperature, "stop": stop, **kept}
        refuse_given(loaded.path, **tuned, repetition_penalty=repetition_penalty != 1)
        return Samples(
            str(loaded.path),
            loaded.step,
            tuple(loaded.labelled(loaded.readable(one, replace)) for one in sources),
            is_answers=True,
        )
    heat = 0.0 if greedy else temperature if temperature is not None else 0.8 * (not sources)
    sampling = Sampling.parse({"temperature": heat, **kept, "repetition_penalty": repetition_penalty}, "generate")
    chosen = {"sampling": sampling, "seed": seed}
    options = GenerateOptions(num_samples=num_samples, crop=crop, use_cache=use_cache)
    how: dict[str, Any] = {"max_tokens": max_tokens, "stop": tuple(stop)}

    def asked(*texts: str) -> tuple[Sequence[str], GenerateOptions]:
        return asking(model, tokenizer, texts, options) if sources else (texts, options)

    with loaded.in_precision():
        texts = [loaded.readable(one, replace) for one in sources or [prompt]]
        if num_beams is not None:
            how |= {"num_beams": num_beams, "length_penalty": length_penalty}
            groups = [beam_search(model, tokenizer, one, **how, options=own) for (one,), own in map(asked, texts)]
        elif on_text is None or len(texts) * num_samples > 1:
            prompts, own = asked(*texts)
            every = sampled(model, tokenizer, prompts, **how, **chosen, options=own)
            groups = [every[at : at + num_samples] for at in range(0, len(every), num_samples)]
        else:
            (one,), own = asked(*texts)
            pieces, groups = stream(model, tokenizer, one, **how, **chosen, options=own), [[]]
            for piece in chain([] if sources else texts, pieces):
                on_text(piece)
        way = way_of(model, use_cache=use_cache)
    seconds = time.perf_counter() - began
    samples = tuple(changed(one, prompt=text) for text, group in zip(texts, groups, strict=True) for one in group)
    return Samples(str(loaded.path), loaded.step, samples, seconds, way, is_answers=bool(sources))


def refuse_given(path: Path, **options: Any) -> None:
    """Refuse options of writing where a label is named."""
    for name in (name for name, value in options.items() if value):
        raise UsageError("{path}: it names a label, and writes no text; leave {option} out", path=path, option=name)


def _require_sources(run: "Run", sources: Sequence[str], prompt: str) -> None:
    """Refuse a source where there is no answer to one, and a run of sources without any."""
    from vitral.data.answers import checked

    if run.sealed.config.corpus.records is None:
        raise UsageError("{path}: its text has no answers to a source; continue a text with --prompt", path=run.path)
    if prompt or not sources:
        raise UsageError("{path}: it answers sources: give --source TEXT, and no --prompt", path=run.path)
    for one in sources:
        if not checked(one, "source", "generate"):
            raise UsageError("{place}: {key} is empty", place="generate", key="source")


@validated
def chat(
    run: RunLike,
    messages: Sequence[dict[str, Any]] = (),
    *,
    system: str | None = None,
    user: Annotated[str | None, Option(metavar="NAME")] = None,
    answer: Annotated[str | None, Option(metavar="NAME")] = None,
    max_tokens: Natural = 200,
    temperature: Weight = 0.8,
    top_k: Count | None = None,
    top_p: Share | None = None,
    min_p: Share | None = None,
    seed: Natural = 0,
    replace: str | None = None,
    checkpoint: Which = None,
    device: WhereRun = None,
    dtype: RunIn = None,
) -> "Conversation":
    """Talk with a run, which stays in memory: a line of yours, an answer, and so on.

    A run of chats answers as it was trained. With any other text your line is a turn of one speaker of a play, and the
    answer is the next turn of another; where nobody speaks in the text, turns are paragraphs.

    Ctrl-C ends an answer, Ctrl-D the conversation. From a pipe each line is a message.

    Args:
        run: Folder of a run.
        messages: Python only: what was said before, as in `[{"role": "user", "content": "Hello"}, …]`.
        system: Text before all messages; of a run of chats, the system's.  [default: none]
        user: Line of a play that names you, as in "ROMEO.".  [default: one of the two who speak most]
        answer: Line of a play that names who answers.  [default: the one who speaks most]
        max_tokens: Tokens of an answer at most.
        temperature: Sampling temperature: 0 is greedy, lower is less random.
        top_k: Top-k sampling: keep the k most probable tokens.  [default: off]
        top_p: Nucleus sampling: keep the smallest set of tokens with total probability p.  [default: off]
        min_p: Drop tokens below p times the highest probability.  [default: off]
        seed: Seed of the random choices.
        replace: Character to put in place of ones the model has never seen.  [default: refuse them]
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.
        device: Device to run the model on.
        dtype: Precision to run the model in.

    Raises:
        UsageError: not a run, one that cannot generate text or answers sources, or a speaker in a run of chats.
    """
    from vitral.app.conversation import Conversation, speakers_of

    loaded = opened(run, checkpoint, device, dtype)
    loaded.sealed.require_causal_lm()
    records = loaded.sealed.config.corpus.records
    if records not in (None, "chats"):
        raise UsageError("{path}: it answers one source; ask it with vitral generate --source", path=loaded.path)
    if records and (user or answer):
        raise UsageError("--user and --answer name speakers of a play, and {path} is a run of chats", path=loaded.path)
    speakers = None
    if not records:
        likely = ("", "") if user and answer else speakers_of(loaded)
        speakers = (f"{user}\n" if user else likely[0], f"{answer}\n" if answer else likely[1])
    begun = [*([{"role": "system", "content": system}] if system else []), *messages]
    return Conversation(
        loaded,
        speakers,
        begun,
        **given(top_k=top_k, top_p=top_p, min_p=min_p, replace=replace),
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
    )


@validated
def fill(
    run: RunLike,
    text: Annotated[str, Option()],
    *,
    top: Count = 5,
    tokens: Count = 1,
    replace: str | None = None,
    checkpoint: Which = None,
    device: WhereRun = None,
    dtype: RunIn = None,
) -> "FilledGaps":
    """Fill the gaps of a text, each from what stands on both sides of it.

    Each [MASK] in the text is a gap. Any text has a pseudo-perplexity: how sure the model is of each token, given all
    others. The run must be trained to predict hidden tokens (training.objective).

    Args:
        run: Folder of a run.
        text: Text with gaps, as in "To [MASK] or not".
        top: Fillings of each gap to list.
        tokens: Tokens in each gap.
        replace: Character to put in place of ones the model has never seen.  [default: refuse them]
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.
        device: Device to run the model on.
        dtype: Precision to run the model in.

    Raises:
        UsageError: not a run, one that predicts next tokens only, an empty text, one longer than the context, or an
            unseen character.
    """
    from vitral.app.results import FilledGaps
    from vitral.evaluation import fill
    from vitral.evaluation.masking import filling_of

    loaded = opened(run, checkpoint, device, dtype)
    if (masking := filling_of(loaded.sealed.config.training.objective, loaded.tokenizer)) is None:
        raise UsageError(
            "{path}: it was not trained to predict hidden tokens, so it fills no gap; train a run for it: vitral train "
            "TEXT --set training.objective=mixed, which continues texts too",
            path=loaded.path,
        )
    with loaded.in_precision():
        filled = fill(
            loaded.model,
            loaded.tokenizer,
            text,
            masking,
            top=top,
            tokens=tokens,
            replace=replace,
            around=loaded.tokenizer.around if loaded.sealed.imported else ((), ()),
        )
    return FilledGaps(str(loaded.path), loaded.step, filled)


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
    from vitral.evaluation import training_text
    from vitral.evaluation.measures import Copying, Measures, TextMeasures, loss_on_text, measured

    loaded = opened(run, checkpoint, device, dtype, corpus)
    folder, step, masking = str(loaded.path), loaded.step, loaded.masking
    with loaded.in_precision():
        if text is not None:
            loaded.require_own_text()
            name, loss, is_changed = loss_on_text(loaded.model, loaded.tokenizer, text, masking, replace)
            return TextMeasures(folder, step, name, loss, is_changed)
        measures = measured(loaded.model, loaded.dataset(), loaded.sealed.config.training.objective)
    copied = None
    if copying is not False and masking is None and loaded.sealed.config.corpus.records is None:
        copied = Copying.of(loaded.generate(max_tokens=SAMPLE_TOKENS), training_text(loaded.dataset()))
    return Measures(
        folder,
        step,
        baselines=loaded.ngram_baselines(),
        copying=copied,
        is_masked_lm=masking is not None,
        problems=tuple(loaded.sealed.document("corpus").get("problems", ())),
        **measures,
    )


@validated
def why(run: RunLike) -> "WhySample":
    """Say why the sample of a run is as it is, and what to try next.

    From facts of the run: its steps and size, the length of its text and how often it was read, the n-gram tables,
    problems of the text.

    Args:
        run: Folder of a run.

    Raises:
        UsageError: not a run, or an imported one, which was not trained here.
    """
    from vitral.doctor.sample import WhySample
    from vitral.runs import enter
    from vitral.runs.loading import warn_on_stderr

    return WhySample.of(enter(path_of(run), warn_on_stderr))


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
    from vitral.inspection.edits import edits_of, read_edits
    from vitral.inspection.one_text import inspect_text

    loaded = opened(run, checkpoint, device, dtype, corpus)
    loaded.require_own_text()
    made = edits_of(read_edits(edits) if isinstance(edits, str) else edits)
    if windows and loaded.sealed.config.corpus.records:
        raise UsageError("inspect: --windows: the records of {path} have no windows; leave it out", path=loaded.path)
    part = None if windows is None else loaded.dataset().splits["test"]
    with loaded.in_precision():
        inspection = inspect_text(
            loaded.model,
            loaded.tokenizer,
            loaded.readable(text, replace),
            part=part,
            windows=windows,
            top=top,
            edits=made,
            masking=loaded.masking,
        )
    return Inspection({"run": str(loaded.path), "step": loaded.step} | inspection)


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
