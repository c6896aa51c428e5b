"""The film of a run for its page: its weights after some steps, and how its loss fell."""

import base64
from collections.abc import Sequence
from contextlib import suppress

import torch

from vitral.core.errors import UsageError, VitralError
from vitral.core.graphs import Plain
from vitral.core.language import _
from vitral.runs import LoadedRun
from vitral.runs.loading import curve, load_frame, warn_on_stderr


def film_steps(run: LoadedRun) -> list[int]:
    """The steps of the film's frames but that of the loaded checkpoint, whose weights the page has whole.

    A damaged log has none; loading the run has given a note of the damage.
    """
    with suppress(UsageError):
        return sorted(run.sealed.film().keys() - {run.step})
    return []


def film_about(run: LoadedRun, steps: Sequence[int]) -> Plain:
    """The entry `film` of `About` (web/src/page/source.ts); nothing without steps or losses."""
    if not steps:
        return {}
    try:
        of_batches, measured = curve(run.sealed, "step", "loss"), curve(run.sealed, "evaluation", "validation_loss")
    except UsageError as error:
        warn_on_stderr(str(error))
        return {}
    last = run.sealed.config.training.steps
    return {"film": {"steps": steps, "last": last, "training": of_batches, "validation": measured}}


def carried_film(run: LoadedRun, steps: Sequence[int], graphs: Plain, check: Plain) -> Plain | None:
    """The frames that a page carries.

    Args:
        run: the run, on the processor.
        steps: of the frames.
        graphs: those of the page.
        check: a sentence (`Checks.sentences`), after which the page compares its logits with PyTorch's.

    Returns:
        {"constants": [name], "frames": [{"step", "weights", "logits"}]}: the graphs' constants that are trained, and of
        each frame their numbers one after another as float16 in base64; None without any.
        A damaged frame is left out, with a note.
    """
    trained = run.model.state_dict()
    constants = [each["name"] for each in graphs["constants"] if each["name"] in trained]
    frames, film = list[Plain](), run.sealed.film() if steps else {}
    for step in steps:
        try:
            model = load_frame(run.sealed, run.model, step, film)
        except VitralError as error:
            warn_on_stderr(_("film: step {step} is left out: {reason}", step=step, reason=error))
            continue
        source = torch.tensor([check["source"]]) if "source" in check else None
        weights, logits = model.state_dict(), model(torch.tensor([check["ids"]]), source=source)[0, -1].tolist()
        numbers = b"".join(weights[name].half().numpy().tobytes() for name in constants)
        frames.append({"step": step, "weights": base64.b64encode(numbers).decode("ascii"), "logits": logits})
    return {"constants": constants, "frames": frames} if frames else None
