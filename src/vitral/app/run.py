"""A loaded run: model, tokenizer, folder, and the operations on them.

What only some operations need, pages and plots above all, is imported by them: the first token waits for no plot.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial, reduce
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np
import torch
from torch import Tensor

from vitral.core.config import shown
from vitral.core.devices import DtypeName, precision, resolve_device, weight_dtype
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import _, number
from vitral.core.shown import Shown, data_frame
from vitral.data import UnseenCharacter
from vitral.data.alphabet import token_ids
from vitral.data.answers import ANSWER
from vitral.decoding import Sample
from vitral.decoding.reader import source_ids
from vitral.model import count_parameters
from vitral.model.hooked import HookedTransformer
from vitral.model.modes import evaluating
from vitral.model.transformer import check_device
from vitral.runs import enter, load_run
from vitral.runs.loading import load_frame, warn_on_stderr
from vitral.runs.zoo import located

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pandas

    from vitral.app.results import FilledGaps, Inspection
    from vitral.data import Dataset
    from vitral.doctor.sample import WhySample
    from vitral.evaluation import Masking, NgramBaselines
    from vitral.evaluation.measures import Measures, TextMeasures
    from vitral.explanation import Walkthrough
    from vitral.inspection.activations import Activations
    from vitral.inspection.circuits import Attribution
    from vitral.inspection.edits import Given as Edits
    from vitral.inspection.sweep import Sweep
    from vitral.model.hooked import Hook

Names = str | Sequence[str]
"""One string, or several."""
Texts = Names | Sequence[int] | Sequence[Sequence[int]] | Tensor | np.ndarray
"""A text, several, the token ids of one, or those of several."""

F = TypeVar("F", bound=Callable[..., Any])
Which = Literal["best", "last"]
"""A checkpoint: the one with the lowest validation loss, or the last."""


_arguments: Any = import_module("vitral.app.arguments")
"""The module that knows runs too, as whose argument a run is validated."""
validated = _arguments.validated


def _of_vitral(name: str) -> Any:
    """A function of the facade, found by its name: the facade makes runs."""
    return getattr(import_module("vitral"), name)


def _asking(name: str) -> "Callable[[F], F]":
    """A decorator of a method that passes its options to a function of the facade."""
    return _arguments.keywords_of(_of_vitral(name))


class Generating(TypedDict, total=False):
    """The options of `vitral.generate`, for editors that know no signature but the written one."""

    source: Names
    max_tokens: int
    num_samples: int
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    greedy: bool
    num_beams: int | None
    length_penalty: float
    stop: Names
    seed: int
    crop: bool
    replace: str | None
    use_cache: bool
    checkpoint: Which | None
    device: Literal["auto", "cpu", "cuda", "mps"] | None
    dtype: DtypeName | None
    on_text: Callable[[str], Any] | None


class Run(Shown):
    """A trained model, loaded.

    Attributes:
        path: the run's folder as it was given, or zoo:NAME; `folder.path` is where it lies.
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
        hooks: what `hooked` was given.
    """

    frame: int | None = None
    hooks: "tuple[Mapping[str, Hook], ...]" = ()

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
            path: the run's folder, or zoo:NAME (vitral list zoo).
            which: "best" or "last".
            device: "auto", "cpu", "cuda" or "mps".
            dtype: precision of the arithmetic.
            corpus: the run's text, if it is no longer where it was: a file, a folder or a name.

        Raises:
            UsageError: not a run, no whole checkpoint, or a device that is missing or computes wrong numbers.
        """
        loaded, where = load_run(located(path), which), resolve_device(device)
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
        made = copy(self)
        made.model, made.step, made.frame = load_frame(self.sealed, self.model, step, self.sealed.film()), step, step
        made.hooks = ()
        return reduce(Run.hooked, self.hooks, made)

    def hooked(self, hooks: "Mapping[str, Hook]") -> "Run":
        """The run with functions that see, and may replace, activations in every forward pass of its model.

        `run.hooked({"blocks.0.attn.weights": lambda weights: weights.round()}).generate("To be")`: all that the run
        computes with its model goes through them: `generate`, `loss`, `cache`, `evaluate`, `inspect` and so on. The
        run itself stays as it is. Hooks come before `edits`.

        Args:
            hooks: by names, as `cache` takes them: functions of the activation, [batch, ...], or of it and its name.
                They return what the model continues with, of the same shape, or None for the same. While it generates,
                without a cache, they receive the whole window for each token.

        Raises:
            UsageError: a name no activation has, or no mapping.
        """
        if not isinstance(hooks, Mapping):
            raise UsageError("hooked: expected a mapping, as {example}", example='{"blocks.0.attn.weights": function}')
        made = copy(self)
        made.model, made.hooks = HookedTransformer.of(self.model, hooks), (*self.hooks, hooks)
        return made

    @_asking("generate")
    def generate(self, prompt: str = "", **options: Unpack[Generating]) -> str:
        """The prompt and its continuation; the options are those of `vitral.generate`."""
        return _of_vitral("generate")(self, prompt, **options).text

    @_asking("chat")
    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The answer to the last of some messages, each with "role" and "content"; the options of `vitral.chat`."""
        *before, last = messages
        return _of_vitral("chat")(self, before, **options).say(last["content"])

    @_asking("fill")
    def fill(self, text: str, **options: Any) -> "FilledGaps":
        """Fillings of each `[MASK]` of a text; the options are those of `vitral.fill`."""
        return _of_vitral("fill")(self, text, **options)

    @_asking("evaluate")
    def evaluate(self, **options: Any) -> "Measures | TextMeasures":
        """Losses on whole splits, or on a text; the options are those of `vitral.evaluate`."""
        return _of_vitral("evaluate")(self, **options)

    @_asking("inspect")
    def inspect(self, text: str, **options: Any) -> "Inspection":
        """Attention maps, ablations, logit lens and norms; the options are those of `vitral.inspect`."""
        return _of_vitral("inspect")(self, text, **options)

    @_asking("explain")
    def explain(self, text: str | None = None, **options: Any) -> "Walkthrough":
        """A forward pass in the model's own numbers; the options are those of `vitral.explain`."""
        return _of_vitral("explain")(self, text, **options)

    def why(self) -> "WhySample":
        """Why its sample is as it is, and what to try next."""
        return _of_vitral("why")(self)

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
            scores = self.model(self._row(ids, None)[None])[0].double().log_softmax(-1)
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
            UsageError: the model has no token for `replace`, or for a character where it is None.
        """
        ids = self._ids(text, replace)
        return text if replace is None else self.tokenizer.decode(ids)

    def _ids(self, text: str, replace: str | None) -> "np.ndarray":
        try:
            return self.tokenizer.encode(text, replacement=replace)
        except UnseenCharacter as error:
            known = self.tokenizer.alphabet if self.tokenizer.name == "char" else " "
            raise UsageError(
                "{where} is not in {alphabet}; remove it, or replace such characters: "
                '--replace "{other}", in Python replace="{other}"',
                where=error.where,
                alphabet=error.alphabet,
                other=" " if " " in known else known[0],
            ) from None

    def encode(self, text: str, *, replace: str | None = None) -> Tensor:
        """The text as a batch of one, [1, time], on the model's device; for `replace` see `readable`."""
        ids = torch.from_numpy(self._ids(text, replace))
        return ids[None, :].to(self.model.token_embedding.weight.device)

    def _row(self, given: Any, replace: str | None) -> Tensor:
        """A text, or ids, as checked ids."""
        if isinstance(given, str):
            return self.encode(self.answer(given), replace=replace)[0]
        if not isinstance(given, Collection):
            raise UsageError("expected a text or its token ids, not {given}", given=shown(given))
        ids = token_ids(given.numpy(force=True) if isinstance(given, Tensor) else given, self.model.vocab_size)
        return torch.from_numpy(ids).to(self.model.token_embedding.weight.device)

    def cache(
        self,
        texts: "Texts",
        names: Names | None = None,
        *,
        source: Names = (),
        gradients: bool = False,
        edits: "Edits" = (),
        replace: str | None = None,
    ) -> "Activations":
        """The named activations of a text, or of several, each [batch, ...].

        Texts of one length are read together. Where they differ, what is behind a shorter one is NaN, and -1 in the
        attribute `tokens`; the same holds for sources, and for the attribute `source`.

        Args:
            texts: a text, several, the token ids of one, or those of several.
            names: of the activations (`vitral list names`): one or several, patterns such as `*.attn.weights`, or
                TransformerLens' names; all if None.
            source: encoder-decoder only: the text that the encoder reads, one for each of the texts. Texts are then how
                their answers begin.
            gradients: whether the attribute `gradients` has the gradient of the mean next-token loss, which the
                attribute `loss` has, with respect to each of them.
            edits: what is changed on the way, as in `[{"at": "blocks.1.attn.z", "heads": [3], "do": "zero"}]`; see
                `vitral.inspection.edits`. An edited activation is returned as it is after its edits.
            replace: see `readable`.

        Raises:
            UsageError: a name no activation has, an unseen character, no id, a text longer than the context, an edit
                that does not fit, gradients of a model that predicts no next token, or sources that are missing, too
                many or that nothing reads.
        """
        from vitral.inspection.activations import record
        from vitral.inspection.edits import editing_tap, edits_of

        if gradients:
            self.sealed.require_causal_lm()
            if self.model.encoder is None or source == "":
                self.require_own_text()
        several = isinstance(texts, Collection) and not isinstance(texts, str) and getattr(texts, "ndim", 2) == 2
        listed: Any = texts if several and not (len(texts) and isinstance(texts[0], Real)) else [texts]
        made, row, most = edits_of(edits), partial(self._row, replace=replace), self.model.config.source_length
        read = [
            row(source_ids(self.tokenizer, self.readable(one, replace), most))
            for one in ([source] if isinstance(source, str) else source or ())
        ]
        tap = partial(editing_tap, self.model, edits=made, encode=lambda other: row(other)[None])
        with self.in_precision():
            return record(self.model, [*map(row, listed)], names, sources=read, tap=tap, gradients=gradients)

    def answer(self, text: str) -> str:
        """The text as the model reads it: of an encoder-decoder after the token that opens answers."""
        is_whole = self.model.encoder is None or ANSWER not in self.tokenizer.declared or text.startswith(ANSWER)
        return text if is_whole else ANSWER + text

    def trace(
        self,
        text: "Texts",
        names: Names | None = None,
        *,
        source: Names = (),
        edits: "Edits" = (),
        replace: str | None = None,
    ) -> "Activations":
        """As `cache`, without gradients."""
        return self.cache(text, names, source=source, edits=edits, replace=replace)

    def loss(self, texts: "Texts", *, source: Names = (), edits: "Edits" = (), replace: str | None = None) -> float:
        """The mean loss of the next tokens of texts, in nats per token; arguments as those of `cache`.

        Raises:
            UsageError: as `cache`; there is no next token; or the model predicts none.
        """
        return self.cache(texts, [], source=source, gradients=True, edits=edits, replace=replace).loss

    @validated
    def qk(self: "Run", layer: int, head: int) -> Tensor:
        """W_QK = W_Q W_Kᵀ of a head, [d_model, d_model], counted from 0.

        x_q W_QK x_kᵀ is the score of a query and a key, of their normalised streams, without biases, the scale and what
        positions do. Where heads share keys, W_K is that of the head's group.

        Raises:
            UsageError: no such layer, head, or attention.
        """
        from vitral.inspection.circuits import head_circuits

        return head_circuits(self.model, layer, head)[0]

    @validated
    def ov(self: "Run", layer: int, head: int) -> Tensor:
        """W_OV = W_V W_O of a head, [d_model, d_model], counted from 0.

        x_k W_OV is what the head adds to the stream of a query that has all its weight on a key, without biases. Where
        heads share values, W_V is that of the head's group.

        Raises:
            UsageError: no such layer, head, or attention.
        """
        from vitral.inspection.circuits import head_circuits

        return head_circuits(self.model, layer, head)[1]

    @validated
    def attribution(
        self: "Run",
        text: str,
        token: str | int | None = None,
        *,
        other: str | int | None = None,
        position: int = -1,
        replace: str | None = None,
    ) -> "Attribution":
        """What each part of the model adds to a logit (direct logit attribution); the parts add up to it.

        Args:
            text: what the model reads.
            token: whose logit; a text that is one token, or an id; the likeliest if None.
            other: subtract the logit of this one.
            position: at which the logits are read.
            replace: see `readable`.

        Raises:
            UsageError: an unseen character, or `attribute_logit` refuses one of them.
        """
        from vitral.inspection.circuits import attribute_logit

        self.require_own_text()
        text = self.readable(text, replace)
        with self.in_precision():
            return attribute_logit(self.model, self.tokenizer, text, token, other=other, position=position)

    @validated
    def sweep(
        self: "Run",
        text: str,
        other: str | None = None,
        *,
        tokens: Sequence[str] | None = None,
        by: Literal["layer", "head"] = "layer",
        position: int = -1,
        replace: str | None = None,
    ) -> "Sweep":
        """Every place of the model patched from the sentence `other`, or zeroed if it is None, one at a time.

        Args:
            text: what the model reads.
            other: of as many tokens.
            tokens: the two tokens whose logits are compared; the likeliest if None.
            by: "layer" or "head".
            position: at which the logits are read.
            replace: see `readable`.

        Raises:
            UsageError: an unseen character, `sweep_places` refuses one of them, or the model predicts no next token.
        """
        from vitral.inspection.sweep import sweep_places

        self.sealed.require_causal_lm()
        self.require_own_text()
        text, other = self.readable(text, replace), None if other is None else self.readable(other, replace)
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

    def page(self) -> str:
        """The page of the run as an HTML document."""
        from vitral.report.folder import ReportFolder
        from vitral.report.run import run_page

        return run_page(enter(self.folder.path, warn_on_stderr), ReportFolder())

    def records(self, event: str = "evaluation") -> list[dict[str, Any]]:
        """The events of one kind that training recorded, one row for each."""
        return [{name: value for name, value in one.items() if name != "event"} for one in self.metrics(event)]

    def to_pandas(self, event: str = "evaluation") -> "pandas.DataFrame":
        """The events of one kind as a data frame: "evaluation" (losses on all splits), "step", "sample" and others.

        Raises:
            UsageError: pandas is not installed.
        """
        return data_frame(self.records(event))
