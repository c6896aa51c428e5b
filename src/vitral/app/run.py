"""A loaded run: model, tokenizer, folder, and the operations on them.

What only some operations need, pages and plots above all, is imported by them: the first token waits for no plot.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from vitral.core.devices import DtypeName, precision, resolve_device, weight_dtype
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import _, number
from vitral.core.shown import Shown, data_frame
from vitral.decoding import Sample
from vitral.decoding.reader import rows_of, source_ids
from vitral.model import count_parameters
from vitral.model.modes import evaluating
from vitral.model.selfcheck import check_device
from vitral.report.notebook import page_of
from vitral.runs import enter, load_run
from vitral.runs.loading import warn_on_stderr

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pandas

    from vitral.app.results import FilledGaps, Inspection
    from vitral.data import Dataset
    from vitral.evaluation import Masking, NgramBaselines
    from vitral.evaluation.measures import Measures, TextMeasures
    from vitral.explanation import Walkthrough
    from vitral.inspection.edits import Given as Edits
    from vitral.inspection.sweep import Sweep

Which = Literal["best", "last"]
"""A checkpoint: the one with the lowest validation loss, or the last."""


validated = import_module("vitral.app.arguments").validated
"""Of the module that knows runs too, as whose argument a run is validated."""


def _of_vitral(name: str) -> Any:
    """A function of the facade, found when it is called: the facade makes runs."""
    return getattr(import_module("vitral"), name)


class Run(Shown):
    """A trained model, loaded.

    Attributes:
        path: the run's folder.
        model: the Transformer, in evaluation mode.
        tokenizer: the run's tokenizer.
        config: the whole configuration as plain data.
        sealed: the run's files, verified.
        step: optimizer steps of the loaded checkpoint.
        which: "best" or "last", as it was loaded.
        device: name of the device it was loaded on.
        dtype: precision of its arithmetic.
        corpus: the text that was given for it; None: where the run knows it.
        frame: the step of the film's frame whose weights it has; None: it has those of its checkpoint.
    """

    frame: int | None = None

    def __init__(
        self,
        path: str | Path,
        which: Which = "best",
        *,
        device: str = "cpu",
        dtype: DtypeName = "float32",
        corpus: str | Path | None = None,
    ) -> None:
        """Load the "best" or "last" checkpoint of the run at `path`.

        Args:
            path: the run's folder.
            which: "best" or "last".
            device: "auto", "cpu", "cuda" or "mps".
            dtype: precision of the arithmetic.
            corpus: the run's text, if it is no longer where it was: a file, a folder or a name.

        Raises:
            UsageError: not a run, no whole checkpoint, or a device that is missing or computes wrong numbers.
        """
        loaded, where = load_run(Path(path), which), resolve_device(device)
        self.path, self.folder, self.sealed = Path(path), loaded.folder, loaded.sealed
        self.tokenizer, self.config, self.step = loaded.tokenizer, loaded.config, loaded.step
        if where.type != "cpu":
            check_device(loaded.model, where)
        self.model = loaded.model.to(device=where, dtype=weight_dtype(dtype))
        self.which: Which = which
        self.dtype: DtypeName = dtype
        self.device, self.corpus = device, corpus

    @validated
    def at(self: "Run", step: int) -> "Run":
        """The run with the weights that it had after `step`, a frame of its film (`training.film`), in float16.

        Raises:
            UsageError: the film has no such frame, or it is damaged.
        """
        from vitral.training.film import load_frame

        made = copy(self)
        made.model, made.step, made.frame = load_frame(self.sealed, self.model, step, self.sealed.film()), step, step
        return made

    def generate(self, prompt: str = "", **options: Any) -> str:
        """The prompt and its continuation; the options are those of `vitral.generate`."""
        return _of_vitral("generate")(self, prompt, **options).text

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The answer to the last of some messages, each with "role" and "content"; the options of `vitral.chat`."""
        *before, last = messages
        return _of_vitral("chat")(self, before, **options).say(last["content"])

    def fill(self, text: str, **options: Any) -> "FilledGaps":
        """Fillings of each `[MASK]` of a text; the options are those of `vitral.fill`."""
        return _of_vitral("fill")(self, text, **options)

    def evaluate(self, **options: Any) -> "Measures | TextMeasures":
        """Losses on whole splits, or on a text; the options are those of `vitral.evaluate`."""
        return _of_vitral("evaluate")(self, **options)

    def inspect(self, text: str, **options: Any) -> "Inspection":
        """Attention maps, ablations, logit lens and norms; the options are those of `vitral.inspect`."""
        return _of_vitral("inspect")(self, text, **options)

    def explain(self, text: str | None = None, **options: Any) -> "Walkthrough":
        """A forward pass in the model's own numbers; the options are those of `vitral.explain`."""
        return _of_vitral("explain")(self, text, **options)

    def require_own_text(self) -> None:
        """Refuse a model that answers sources where one reads a text by itself.

        Raises:
            UsageError: it is one.
        """
        if self.model.encoder is not None or self.model.config.num_labels:
            raise UsageError(
                "{path}: it answers sources, and predicts no text by itself; ask it with vitral generate --source, or "
                "see a pass with vitral explain",
                path=self.path,
            )

    def labelled(self, text: str) -> Sample:
        """The likeliest label of a text, by a run of labels, with its log-probability.

        Raises:
            UsageError: the text has a character without a token, or is longer than the model reads.
        """
        ids = source_ids(self.tokenizer, text, self.model.config.context_length)
        with self.in_precision(), evaluating(self.model):
            scores = self.model(rows_of(self.model, [ids]))[0].double().log_softmax(-1)
        best = int(scores.argmax())
        return Sample(text, self.sealed.document("corpus")["labels"][best], (best,), "end", scores[best].item())

    def in_precision(self) -> "AbstractContextManager[object]":
        """A block in which the model computes in the run's precision."""
        return precision(resolve_device(self.device), self.dtype)

    @property
    def masking(self) -> "Masking | None":
        """How tokens are masked, of a run that was trained to predict masked tokens instead of the next one."""
        from vitral.evaluation.masking import masking_of

        return masking_of(self.sealed.config.training.objective, self.tokenizer)

    def dataset(self) -> "Dataset":
        """The run's text, tokenized and split as it was in training; nothing is downloaded.

        Raises:
            UsageError: it cannot be found, or has changed since.
        """
        return self.sealed.dataset(self.corpus)

    def ngram_baselines(self) -> "NgramBaselines":
        """The losses of n-gram models on the run's test split."""
        from vitral.evaluation import NgramBaselines, ngram_baselines

        try:
            known = self.sealed.ngrams()
        except UsageError as error:
            warn_on_stderr(_("{complaint}; they are counted again", complaint=error))
            known = None
        if known is not None:
            return NgramBaselines.from_plain(known)
        parts = self.dataset().splits
        return ngram_baselines(parts["train"], parts["test"], self.tokenizer.vocab_size)

    def readable(self, text: str, replace: str | None = None) -> str:
        """The text with `replace` for each character that the model has no token for; unchanged if None.

        Raises:
            UsageError: the model has no token for `replace`.
        """
        return text if replace is None else self.tokenizer.decode(self.tokenizer.encode(text, replacement=replace))

    def encode(self, text: str, *, replace: str | None = None) -> Tensor:
        """The text as a batch of one, [1, time], on the model's device; for `replace` see `readable`."""
        ids = torch.from_numpy(self.tokenizer.encode(text, replacement=replace))
        return ids[None, :].to(self.model.token_embedding.weight.device)

    def trace(
        self, text: str, names: Sequence[str] | None = None, *, edits: "Edits" = (), replace: str | None = None
    ) -> dict[str, Tensor]:
        """Every named activation of one forward pass over `text` (or only `names`), each with a leading batch of 1.

        Args:
            text: what the model reads.
            names: of the activations; all if None.
            edits: what is changed on the way, as in `[{"at": "blocks.1.attn.z", "heads": [3], "do": "zero"}]`; see
                `vitral.inspection.edits`. An edited activation is returned as it is after its edits.
            replace: see `readable`.

        Raises:
            UsageError: a name no activation has, an unseen character, a text longer than the context, or an edit that
                does not fit.
        """
        from vitral.inspection import edited_trace
        from vitral.inspection.edits import edits_of

        tokens = self.encode(text, replace=replace)
        if not 1 <= tokens.shape[1] <= self.model.config.context_length:
            raise UsageError(
                "trace: {tokens} tokens, expected 1 to {context_length}",
                tokens=tokens.shape[1],
                context_length=self.model.config.context_length,
            )
        names = None if names is None else list(names)
        return edited_trace(self.model, tokens, names, edits_of(edits), self.encode)

    @validated
    def sweep(
        self: "Run",
        text: str,
        other: str | None = None,
        *,
        tokens: Sequence[str] | None = None,
        by: Literal["layer", "head"] = "layer",
        position: int = -1,
    ) -> "Sweep":
        """Every place of the model patched from the sentence `other`, or zeroed if it is None, one at a time.

        Args:
            text: what the model reads.
            other: of as many tokens.
            tokens: the two tokens whose logits are compared; the likeliest if None.
            by: "layer" or "head".
            position: at which the logits are read.

        Raises:
            UsageError: `sweep_places` refuses one of them, or the model predicts no next token.
        """
        from vitral.inspection.sweep import sweep_places

        self.sealed.require_causal_lm()
        self.require_own_text()
        with self.in_precision():
            return sweep_places(self.model, self.tokenizer, text, other, tokens=tokens, by=by, position=position)

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """The events recorded in training, all or those of one kind."""
        return self.folder.metrics(event)

    @property
    def parameters(self) -> int:
        """The number of learned parameters."""
        return count_parameters(self.model.config, self.model.vocab_size)

    def _measured(self) -> dict[str, Any] | None:
        """The last evaluation up to the loaded checkpoint, or that of the frame; None also where the folder is gone."""
        with suppress(VitralError):
            until = [one for one in self.metrics("evaluation") if one["step"] <= self.step]
            return next((one for one in until[-1:] if self.frame in (None, one["step"])), None)

    def __str__(self) -> str:
        """One line."""
        measured, config = self._measured(), self.model.config
        facts = {
            _("parameters"): number(self.parameters, ","),
            _("shape"): _(
                "{layers} layers, {heads} heads, d_model {d_model}",
                layers=config.num_layers,
                heads=config.num_heads,
                d_model=config.d_model,
            ),
            _("context"): _(
                "{tokens} tokens of {vocab_size} ({tokenizer})",
                tokens=config.context_length,
                vocab_size=self.model.vocab_size,
                tokenizer=self.tokenizer.name,
            ),
            _("step"): number(self.step, ","),
        }
        if measured is not None:
            facts[_("test loss")] = _("{loss:.3f} nats per token", loss=measured["test_loss"])
        return f"Run({str(self.path)!r}: " + "; ".join(f"{name} {value}" for name, value in facts.items()) + ")"

    def plain(self) -> dict[str, Any]:
        """The run as plain data: folder, step, configuration, parameters and the last evaluation."""
        return {
            "run": str(self.path),
            "step": self.step,
            "id": self.sealed.identity.run,
            "parameters": self.parameters,
            "evaluation": self._measured(),
            "config": self.config,
        }

    def records(self, event: str = "evaluation") -> list[dict[str, Any]]:
        """The events of one kind that training recorded, one row for each."""
        return [{name: value for name, value in one.items() if name != "event"} for one in self.metrics(event)]

    def to_pandas(self, event: str = "evaluation") -> "pandas.DataFrame":
        """The events of one kind as a data frame: "evaluation" (losses on all splits), "step", "sample" and others.

        Raises:
            UsageError: pandas is not installed.
        """
        return data_frame(self.records(event))


@page_of.register
def _run_page(run: Run) -> str:
    from vitral.report.folder import ReportFolder
    from vitral.report.run import run_page

    return run_page(enter(run.path, warn_on_stderr), ReportFolder())
