"""A loaded run: model, tokenizer, folder, and the operations on them.

What only some operations need, pages and plots above all, is imported by them: the first token waits for no plot.
"""

from collections.abc import Collection, Iterator, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from vitral.core.devices import DtypeName, precision, resolve_device, weight_dtype
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import _, number
from vitral.core.renamed import renamed
from vitral.core.shown import Shown
from vitral.core.tables import data_frame
from vitral.decoding import GenerateOptions, Sample, Sampling, Way, beam_search, generate, stream, way_of
from vitral.decoding.text import check_stop
from vitral.inspection.edit_data import Given as Edits
from vitral.inspection.edit_data import edits_of
from vitral.model import ParameterRow, parameter_table
from vitral.model.selfcheck import check_device
from vitral.report.notebook import page_of
from vitral.runs import enter, load_run
from vitral.runs.loading import warn_on_stderr

if TYPE_CHECKING:
    import pandas

    from vitral.data import Dataset
    from vitral.evaluation import Masking, NgramBaselines, SplitLoss
    from vitral.evaluation.measures import Measures, TextMeasures
    from vitral.explanation import RunView, Walkthrough

SAMPLE_TOKENS = 1000
SAMPLE_TEMPERATURE = 0.8
Which = Literal["best", "last"]
"""A checkpoint: the one with the lowest validation loss, or the last."""


def _stop_strings(stop: Any) -> Any:
    return tuple(stop) if isinstance(stop, Collection) and not isinstance(stop, str) else stop


def _whole(number: Any) -> Any:
    """Integers of other kinds, such as those of NumPy, as Python's."""
    return int(number) if isinstance(number, Integral) and not isinstance(number, bool) else number


class Generation(Sampling, GenerateOptions):
    """Every option of generation, those of `Sampling` and `GenerateOptions` included.

    Attributes:
        max_tokens: tokens to generate at most.
        seed: of the random choices.
        stop: strings; the text ends before the first of them.
        num_beams: beam search with this many beams instead of sampling; its best `num_samples` texts are returned.
        length_penalty: of beam search; above 0 favours longer texts.
        replace: a character that replaces those of the prompt without a token; they are refused if None.
    """

    max_tokens: Annotated[int, BeforeValidator(_whole), Field(ge=0)] = 400
    temperature: Annotated[float, Field(ge=0)] = SAMPLE_TEMPERATURE
    seed: Annotated[int, BeforeValidator(_whole), Field(ge=0, lt=2**63)] = 0
    stop: Annotated[tuple[str, ...], BeforeValidator(_stop_strings)] = ()
    num_beams: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_whole)] = None
    length_penalty: float = 0.0
    replace: str | None = None


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
    """

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
        loaded = load_run(Path(path), which)
        self.path, self.folder, self.sealed = Path(path), loaded.folder, loaded.sealed
        self.tokenizer, self.config, self.step = loaded.tokenizer, loaded.config, loaded.step
        where = resolve_device(device)
        if where.type != "cpu":
            check_device(loaded.model, where)
        self.model = loaded.model.to(device=where, dtype=weight_dtype(dtype))
        self._precision = (where, dtype)
        self.which: Which = which
        self.dtype: DtypeName = dtype
        self.device, self.corpus = device, corpus

    def generate(self, prompt: str = "", **options: Any) -> str:
        """The prompt and its continuation.

        Args:
            prompt: text to continue; an empty one starts at the beginning of a line.
            options: fields of `Generation`, for example `max_tokens=100, temperature=0.8, seed=3`.

        Raises:
            UsageError: an invalid option, a character the model has never seen, or a prompt that is too long.
        """
        sample = self.samples([prompt], **options)[0]
        return sample.prompt + sample.text

    def samples(self, prompts: Sequence[str], **options: Any) -> list[Sample]:
        """Continuations of several prompts, `num_samples` of each; with `num_beams`, the best of a beam search.

        Args:
            prompts: texts to continue; an empty one starts at the beginning of a line.
            options: fields of `Generation`.

        Raises:
            UsageError: as for `generate`.
        """
        if "options" in options:
            renamed("options", "by its fields, as in num_samples=2")
            former = options.pop("options")
            options = ({} if former is None else former.plain()) | options
        how = self._generation(options)
        prompts = [self.readable(prompt, how.replace) for prompt in prompts]
        with precision(*self._precision):
            if how.num_beams is not None:
                return [sample for prompt in prompts for sample in self._best(prompt, how.num_beams, how)]
            return generate(
                self.model,
                self.tokenizer,
                prompts,
                max_tokens=how.max_tokens,
                sampling=how,
                seed=how.seed,
                stop=how.stop,
                options=how,
            )

    def generation_way(self, *, use_cache: bool = True) -> Way:
        """Whether generation runs in C, and why it does not."""
        with precision(*self._precision):
            return way_of(self.model, use_cache=use_cache)

    def stream(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """One continuation piece by piece; joined, the text that `generate` adds to the prompt.

        Args:
            prompt: text to continue; an empty one starts at the beginning of a line.
            options: fields of `Generation`, except those of several samples and of beam search.

        Raises:
            UsageError: as for `generate`, before the first piece; or more than one sample is asked for.
        """
        how = self._generation(options)
        if how.num_beams is not None:
            raise UsageError("num_beams: beam search cannot stream; use samples")
        pieces = stream(
            self.model,
            self.tokenizer,
            self.readable(prompt, how.replace),
            max_tokens=how.max_tokens,
            sampling=how,
            seed=how.seed,
            stop=how.stop,
            options=how,
        )
        return self._in_precision(pieces)

    def _in_precision(self, pieces: Iterator[str]) -> Iterator[str]:
        # The precision is global state: it is set for each piece and never left on between them.
        while True:
            with precision(*self._precision):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def beam(self, prompt: str = "", *, max_tokens: int = 100, num_beams: int = 4, **options: Any) -> list[Sample]:
        """The most probable continuations that beam search finds; see `vitral.decoding.beam_search`."""
        self.sealed.require_causal_lm()
        with precision(*self._precision):
            return beam_search(
                self.model, self.tokenizer, prompt, max_tokens=max_tokens, num_beams=num_beams, **options
            )

    def _best(self, prompt: str, num_beams: int, how: Generation) -> list[Sample]:
        return beam_search(
            self.model,
            self.tokenizer,
            prompt,
            max_tokens=how.max_tokens,
            num_beams=num_beams,
            length_penalty=how.length_penalty,
            n_best=how.num_samples,
            stop=how.stop,
        )

    def _generation(self, options: dict[str, Any]) -> Generation:
        self.sealed.require_causal_lm()
        if isinstance(options.get("stop"), Collection):
            check_stop(options["stop"])
        return Generation.parse(options, "generate")

    def evaluate(self, *parts: str) -> "dict[str, SplitLoss]":
        """Loss, perplexity, bits per character and per byte on whole splits ("validation" and "test" if none named).

        The loss of a masked language model is that on masked positions (`vitral.evaluation.evaluate_split`).

        Raises:
            UsageError: an unknown split, or the text is not the one the model was trained on.
        """
        from vitral.evaluation import evaluate_split

        dataset = self.dataset()
        chosen = parts or ("validation", "test")
        for part in chosen:
            if part not in dataset.splits:
                raise UsageError("split {part!r} is not one of {splits}", part=part, splits=", ".join(dataset.splits))
        with precision(*self._precision):
            return {
                part: evaluate_split(self.model, dataset.splits[part], self.tokenizer, masking=self._masking)
                for part in chosen
            }

    def measure_text(self, text: str | Path, *, replace: str | None = None) -> "TextMeasures":
        """The loss on the whole of any text, in nats per token, bits per character and bits per byte.

        Args:
            text: a file, a folder or a name, as of a corpus.
            replace: a character in place of those that the model has no token for, which are refused if None.

        Raises:
            UsageError: the text cannot be read, or a character has no token.
        """
        from vitral.evaluation.measures import TextMeasures, loss_on_text

        with precision(*self._precision):
            name, loss, is_changed = loss_on_text(self.model, self.tokenizer, text, self._masking, replace)
        return TextMeasures(str(self.path), self.step, name, loss, is_changed)

    def measure(self, *, copying: bool = True) -> "Measures":
        """Losses on the whole validation and test splits, and how much one sample copies from the training text.

        Raises:
            UsageError: as for `evaluate`.
        """
        from vitral.evaluation import training_text
        from vitral.evaluation.measures import Copying, Measures

        splits = self.evaluate("validation", "test")
        copied = None
        if copying and not self.is_masked_lm:
            sample = self.samples([""], max_tokens=SAMPLE_TOKENS, temperature=SAMPLE_TEMPERATURE)[0].text
            copied = Copying.of(sample, training_text(self.dataset()))
        problems = tuple(self.sealed.document("corpus").get("problems", ()))
        return Measures(str(self.path), self.step, splits, self.ngram_baselines(), copied, self.is_masked_lm, problems)

    @property
    def is_masked_lm(self) -> bool:
        """Whether the run was trained to predict masked tokens instead of the next one."""
        return self._masking is not None

    @property
    def fills_blanks(self) -> bool:
        """The former name of `is_masked_lm`."""
        renamed("fills_blanks", "is_masked_lm")
        return self.is_masked_lm

    @property
    def _masking(self) -> "Masking | None":
        from vitral.training.objectives import masking_of

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

    def ngram_lines(self) -> "NgramBaselines":
        """The former name of `ngram_baselines`."""
        renamed("ngram_lines", "ngram_baselines")
        return self.ngram_baselines()

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
        self, text: str, names: Sequence[str] | None = None, *, edits: Edits = (), replace: str | None = None
    ) -> dict[str, Tensor]:
        """Every named activation of one forward pass over `text` (or only `names`), each with a leading batch of 1.

        Args:
            text: what the model reads.
            names: of the activations; all if None.
            edits: what is changed on the way, as in `[{"at": "blocks.1.attn.z", "heads": [3], "do": "zero"}]`; see
                `vitral.inspection.edit_data`. An edited activation is returned as it is after its edits.
            replace: see `readable`.

        Raises:
            UsageError: a name no activation has, an unseen character, a text longer than the context, or an edit that
                does not fit.
        """
        from vitral.inspection import edited_trace

        tokens = self.encode(text, replace=replace)
        if not 1 <= tokens.shape[1] <= self.model.config.context_length:
            raise UsageError(
                "trace: {tokens} tokens, expected 1 to {context_length}",
                tokens=tokens.shape[1],
                context_length=self.model.config.context_length,
            )
        names = None if names is None else list(names)
        return edited_trace(self.model, tokens, names, edits_of(edits), self.encode)

    def explain(self, text: str, view: "RunView | None" = None, *, replace: str | None = None) -> "Walkthrough":
        """A forward pass over `text` in the model's own numbers; see `vitral.explanation.walk_run`.

        For `replace` see `readable`.
        """
        from vitral.explanation import walk_run

        with precision(*self._precision):
            return walk_run(self.model, self.tokenizer, self.readable(text, replace), view, self.path.name)

    def inspect(
        self,
        text: str,
        *,
        windows: int | None = None,
        top: int = 5,
        edits: Edits = (),
        replace: str | None = None,
    ) -> dict[str, Any]:
        """Attention maps, ablations, logit lens and norms as plain data; see `vitral.inspection.inspect_text`.

        For `edits` see `trace`, for `replace` see `readable`.
        """
        from vitral.inspection import inspect_text

        text = self.readable(text, replace)
        made = edits_of(edits)
        part = None if windows is None else self.dataset().splits["test"]
        how = {"part": part, "windows": windows, "top": top, "edits": made, "masking": self._masking}
        with precision(*self._precision):
            return {"run": str(self.path), "step": self.step} | inspect_text(self.model, self.tokenizer, text, **how)

    def parameters(self) -> list[ParameterRow]:
        """Every learned tensor with its formula and count."""
        return parameter_table(self.model.config, self.model.vocab_size)

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """The events recorded in training, all or those of one kind."""
        return self.folder.metrics(event)

    def _facts(self) -> list[tuple[str, str]]:
        measured, config = self._measured(), self.model.config
        shape = {"layers": config.num_layers, "heads": config.num_heads, "d_model": config.d_model}
        read = {"tokens": config.context_length, "vocab_size": self.model.vocab_size, "tokenizer": self.tokenizer.name}
        facts = [
            (_("parameters"), number(sum(row.count for row in self.parameters()), ",")),
            (_("shape"), _("{layers} layers, {heads} heads, d_model {d_model}", **shape)),
            (_("context"), _("{tokens} tokens of {vocab_size} ({tokenizer})", **read)),
            (_("step"), number(self.step, ",")),
        ]
        if measured is not None:
            facts.append((_("test loss"), _("{loss:.3f} nats per token", loss=measured["test_loss"])))
        return facts

    def _measured(self) -> dict[str, Any] | None:
        """The last evaluation up to the loaded checkpoint; None also where the folder is gone."""
        try:
            measured = self.metrics("evaluation")
        except VitralError:
            return None
        return next((event for event in reversed(measured) if event["step"] <= self.step), None)

    def __str__(self) -> str:
        """One line."""
        return f"Run({str(self.path)!r}: " + "; ".join(f"{name} {value}" for name, value in self._facts()) + ")"

    def plain(self) -> dict[str, Any]:
        """The run as plain data: folder, step, configuration, parameters and the last evaluation."""
        measured = self._measured()
        return {
            "run": str(self.path),
            "step": self.step,
            "id": self.sealed.identity.run,
            "parameters": sum(row.count for row in self.parameters()),
            "evaluation": None if measured is None else dict(measured),
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

    def write_report(self) -> Path:
        """Write the page of the run, as `vitral train` does at its end, and return its path.

        Raises:
            StorageError: writing to disk failed.
        """
        from vitral.report.run import write_run_report

        return write_run_report(self.path)


@page_of.register
def _run_page(run: Run) -> str:
    from vitral.report.folder import Unwritten
    from vitral.report.run import run_page

    return run_page(enter(run.path, warn_on_stderr), Unwritten())
