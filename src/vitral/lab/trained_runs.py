"""Questions to a run, from Python: `evaluate`, `generate` and `inspect`, as the commands of these names."""

from pathlib import Path
from typing import Any

from vitral.core.checked import Count, checked
from vitral.core.devices import DtypeName
from vitral.core.errors import UsageError
from vitral.inspection.edit_data import Given as Edits
from vitral.lab.inspected import Inspection
from vitral.lab.measured_text import TextMeasures
from vitral.lab.measures import Measures
from vitral.lab.opened import opened
from vitral.lab.run import SAMPLE_TEMPERATURE, Run, Which
from vitral.lab.samples import Samples

MAX_TOKENS = 400
"""Of `generate` where nothing is said, as of the command."""


@checked
def evaluate(
    run: str | Path | Run,
    *,
    text: str | Path | None = None,
    replace: str | None = None,
    copying: bool | None = None,
    corpus: str | Path | None = None,
    checkpoint: Which | None = None,
    device: str | None = None,
    dtype: DtypeName | None = None,
) -> Measures | TextMeasures:
    """Measure a run on its own text, beside the n-gram baselines, or on any other text.

    Args:
        run: a folder, or a loaded run, which is measured as it is unless one of the last four is given.
        text: a file, a folder or a name; the run's own text if None.
        replace: a character in place of those that the model has no token for; only with `text`.
        copying: whether to measure how much of a sample is copied from the training text, True if None; not with
            `text`.
        corpus: the run's own text, if it is no longer where it was: a file, a folder or a name; not with `text`.
        checkpoint: "best" or "last".
        device: "auto", "cpu", "cuda" or "mps".
        dtype: precision of the arithmetic.

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
    loaded = opened(run, checkpoint, device, dtype, corpus)
    return loaded.measure(copying=copying is not False) if text is None else loaded.measure_text(text, replace=replace)


@checked
def generate(
    run: str | Path | Run,
    prompt: str = "",
    *,
    greedy: bool = False,
    checkpoint: Which | None = None,
    device: str | None = None,
    dtype: DtypeName | None = None,
    **options: Any,
) -> Samples:
    """Generate text with a run.

    Where nothing is said, the options are those of the command: 400 tokens at temperature 0.8 (those of `Run.generate`
    are 200 at 1.0).

    Args:
        run: a folder, or a loaded run.
        prompt: text to continue; an empty one starts at the beginning of a line.
        greedy: always take the most probable token; the same as `temperature=0`.
        checkpoint: as for `evaluate`.
        device: as for `evaluate`.
        dtype: as for `evaluate`.
        options: fields of `vitral.lab.Generation`, for example `max_tokens=100, temperature=0.8, top_k=20, seed=3,
            num_samples=2`, or `num_beams=4`.

    Raises:
        UsageError: not a run, an invalid option, a character the model has never seen, or a prompt that is too long.
    """
    if greedy and options.get("temperature") not in (None, 0):
        raise UsageError("generate: greedy is temperature 0; leave out one of the two")
    chosen = {"max_tokens": MAX_TOKENS, "temperature": 0.0 if greedy else SAMPLE_TEMPERATURE} | options
    loaded = opened(run, checkpoint, device, dtype)
    return Samples(str(loaded.path), loaded.step, tuple(loaded.samples([prompt], **chosen)))


@checked
def inspect(
    run: str | Path | Run,
    text: str,
    *,
    windows: Count | None = None,
    top: Count = 5,
    edits: Edits = (),
    replace: str | None = None,
    corpus: str | Path | None = None,
    checkpoint: Which | None = None,
    device: str | None = None,
    dtype: DtypeName | None = None,
) -> Inspection:
    """Look inside a run on one text: attention maps, kinds of heads, ablations, logit lens, residual norms.

    Args:
        run: a folder, or a loaded run.
        text: the model reads it.
        windows: of the test split, to measure ablations and kinds of heads on; the text if None.
        top: tokens that the logit lens lists at each position.
        edits: what is changed inside the model, as in `[{"at": "blocks.1.attn.z", "heads": [3], "do": "zero"}]`; the
            result has the key `edited`, what that changes of the predictions.
        replace: a character in place of those that the model has never seen, which are refused if None.
        corpus: as for `evaluate`, and so the next three.
        checkpoint: "best" or "last".
        device: of the model.
        dtype: of the arithmetic.

    Raises:
        UsageError: not a run, an empty text, one longer than the context, or an unseen character.
    """
    loaded = opened(run, checkpoint, device, dtype, corpus)
    return Inspection(loaded.inspect(text, windows=windows, top=top, edits=edits, replace=replace))
