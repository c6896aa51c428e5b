"""A run in the hand: the model with its tokenizer and its folder, and what one does with them."""

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.core.devices import DtypeName, precision, resolve_device, weight_dtype
from vitral.core.errors import UsageError
from vitral.core.names import require_known
from vitral.data import CorpusConfig, Dataset, prepare
from vitral.decoding import GenerateOptions, Sample, Sampling, beam_search, generate, stream
from vitral.evaluation import Masking, NgramBaselines, SplitLoss, evaluate_split, ngram_baselines
from vitral.explain import View, Walkthrough, walk_run
from vitral.model import ParameterRow, parameter_table
from vitral.model.selfcheck import check_device
from vitral.runs import load_run
from vitral.training import TrainingConfig
from vitral.training.objectives import masking_of


class Run:
    """A trained model, loaded.

    Attributes:
        path: the run's folder.
        model: the Transformer, in evaluation mode.
        tokenizer: the run's tokenizer.
        config: the whole configuration as plain data.
        step: optimizer steps the weights have seen.
    """

    def __init__(
        self, path: str | Path, which: str = "best", *, device: str = "cpu", dtype: DtypeName = "float32"
    ) -> None:
        """Load the "best" or "last" checkpoint of the run at `path`.

        Raises:
            UsageError: not a run, nothing whole in it, or a device that is not there or computes wrong numbers.
        """
        loaded = load_run(Path(path), which)
        self.path, self.folder = Path(path), loaded.folder
        self.tokenizer, self.config, self.step = loaded.tokenizer, loaded.config, loaded.step
        where = resolve_device(device)
        if where.type != "cpu":
            check_device(loaded.model, where)
        self.model = loaded.model.to(device=where, dtype=weight_dtype(dtype))
        self._precision = (where, dtype)

    def generate(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 200,
        seed: int = 0,
        stop: Sequence[str] = (),
        crop: bool = False,
        **sampling: Any,
    ) -> str:
        """The prompt and its continuation.

        Args:
            prompt: text to continue; an empty one means the beginning of a line.
            max_tokens: tokens to write.
            seed: of the choices.
            stop: the text ends before the first of these strings.
            crop: keep the last tokens of a prompt longer than the context, instead of refusing it.
            sampling: temperature, top_k, top_p, min_p, repetition_penalty (`vitral.decoding.Sampling`).

        Raises:
            UsageError: a value that cannot be, a character the model has never seen, a prompt that is too long.
        """
        options = GenerateOptions(crop=crop)
        return (
            prompt
            + self.samples([prompt], max_tokens=max_tokens, seed=seed, stop=stop, options=options, **sampling)[0].text
        )

    def samples(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int = 200,
        seed: int = 0,
        stop: Sequence[str] = (),
        options: GenerateOptions | None = None,
        **sampling: Any,
    ) -> list[Sample]:
        """Several continuations at once; see `vitral.decoding.generate`."""
        self._refuse_to_continue()
        how = Sampling.parse(sampling, "sampling")
        with precision(*self._precision):
            return generate(
                self.model,
                self.tokenizer,
                prompts,
                max_tokens=max_tokens,
                sampling=how,
                seed=seed,
                stop=stop,
                options=options or GenerateOptions(),
            )

    def stream(
        self, prompt: str = "", *, max_tokens: int = 200, seed: int = 0, stop: Sequence[str] = (), **sampling: Any
    ) -> Iterator[str]:
        """The continuation piece by piece; joined, what `generate` gives after the prompt."""
        self._refuse_to_continue()
        how = Sampling.parse(sampling, "sampling")
        pieces = stream(self.model, self.tokenizer, prompt, max_tokens=max_tokens, sampling=how, seed=seed, stop=stop)
        return self._precisely(pieces)

    def _precisely(self, pieces: Iterator[str]) -> Iterator[str]:
        """Each piece computed in the run's precision, which is not left on between them."""
        while True:
            with precision(*self._precision):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def beam(self, prompt: str = "", *, max_tokens: int = 100, num_beams: int = 4, **options: Any) -> list[Sample]:
        """The likeliest continuations that beam search finds; see `vitral.decoding.beam_search`."""
        self._refuse_to_continue()
        with precision(*self._precision):
            return beam_search(
                self.model, self.tokenizer, prompt, max_tokens=max_tokens, num_beams=num_beams, **options
            )

    def evaluate(self, *parts: str) -> dict[str, SplitLoss]:
        """Loss, perplexity, bits per character and per byte on whole parts ("validation" and "test" if none named).

        Of a run that was trained to fill blanks it is the loss on blanks (`vitral.evaluation.evaluate_split`).

        Raises:
            UsageError: an unknown part, or the text is no longer the one the model was trained on.
        """
        dataset = self.dataset()
        chosen = parts or ("validation", "test")
        for part in chosen:
            if part not in dataset.splits:
                raise UsageError(f"part {part!r} is not one of {', '.join(dataset.splits)}")
        with precision(*self._precision):
            return {
                part: evaluate_split(self.model, dataset.splits[part], self.tokenizer, masking=self._masking)
                for part in chosen
            }

    @property
    def is_masked_lm(self) -> bool:
        """Whether the run was trained to tell hidden tokens rather than the next one."""
        return self._masking is not None

    @property
    def _masking(self) -> Masking | None:
        training = TrainingConfig.parse(self.config.get("training", {}), f"{self.path}/config.toml")
        return masking_of(training.objective, self.tokenizer)

    def _refuse_to_continue(self) -> None:
        """Refuse to write a text with a model that never learned which token comes next.

        Raises:
            UsageError: it was trained to fill blanks.
        """
        if self.is_masked_lm:
            raise UsageError(
                f'{self.path}: trained to fill blanks (training.objective = "masked"), not to continue a text; '
                'generate with a run whose objective is "next-token"'
            )

    def dataset(self) -> Dataset:
        """The run's text, tokenized and split as it was in training.

        Raises:
            UsageError: it cannot be found, or has changed since.
        """
        config = CorpusConfig.parse(self.config["corpus"], f"{self.path}/config.toml")
        dataset = prepare(config, tokenizer=self.tokenizer)
        if dataset.describe()["sha256"] != self.folder.document("corpus")["sha256"]:
            raise UsageError(f"{self.path}: the text {config.source!r} is not the one this run was trained on")
        return dataset

    def ngram_baselines(self) -> NgramBaselines:
        """What counting alone achieves on the run's test part."""
        known = self.folder.document("corpus").get("ngrams")
        if known is not None:
            return NgramBaselines.from_plain(known)
        parts = self.dataset().splits  # stopped before its first evaluation
        return ngram_baselines(parts["train"], parts["test"], self.tokenizer.vocab_size)

    def encode(self, text: str) -> Tensor:
        """The text as a batch of one, [1, time], on the model's device."""
        ids = torch.from_numpy(self.tokenizer.encode(text))
        return ids[None, :].to(self.model.token_embedding.weight.device)

    def trace(self, text: str, names: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Every named activation of one forward pass over `text` (or only `names`), each with a leading batch of 1.

        Raises:
            UsageError: a name no activation has, an unseen character, or a text longer than the context.
        """
        if names is not None:
            require_known(list(names), self.model.config.num_layers)
        tokens = self.encode(text)
        if not 1 <= tokens.shape[1] <= self.model.config.context_length:
            raise UsageError(f"trace: {tokens.shape[1]} tokens, expected 1 to {self.model.config.context_length}")
        return self.model.trace(tokens, None if names is None else list(names))

    def explain(self, text: str, view: View | None = None) -> Walkthrough:
        """A forward pass over `text` in the model's own numbers; see `vitral.explain.walk_run`."""
        with precision(*self._precision):
            return walk_run(self.model, self.tokenizer, text, view, self.path.name)

    def parameters(self) -> list[ParameterRow]:
        """Every learned tensor with its formula and count."""
        return parameter_table(self.model.config, self.model.vocab_size)

    def metrics(self, event: str | None = None) -> list[dict[str, Any]]:
        """What was measured while training, all or one kind of event."""
        return self.folder.metrics(event)

    def _facts(self) -> list[tuple[str, str]]:
        measured = [event for event in self.metrics("evaluation") if event["step"] <= self.step]
        config = self.model.config
        facts = [
            ("parameters", f"{sum(row.count for row in self.parameters()):,}"),
            ("shape", f"{config.num_layers} layers, {config.num_heads} heads, d_model {config.d_model}"),
            ("context", f"{config.context_length} tokens of {self.model.vocab_size} ({self.tokenizer.name})"),
            ("step", f"{self.step:,}"),
        ]
        if measured:
            facts.append(("test loss", f"{measured[-1]['test_loss']:.3f} nats per token"))
        return facts

    def __repr__(self) -> str:
        """One line."""
        return f"Run({str(self.path)!r}: " + "; ".join(f"{name} {value}" for name, value in self._facts()) + ")"

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._facts())
        return f"<table><caption>{html.escape(str(self.path))}</caption>{rows}</table>"
