"""The proof of an export: the foreign library opens it, computes the same logits and continues with the same tokens."""

import importlib
import importlib.metadata
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.decoding import Sampling, generate
from vitral.model import Transformer

MOST_DIFFERENCE = 1e-5
"""Of logits, as a share of the largest."""
GREEDY_TOKENS = 16
BEGINS = (1, 8, 64)
"""Tokens of the prompts; the last one is as long as the context allows, at most `LONGEST`."""
LONGEST = 128


@dataclass(frozen=True)
class PromptProof:
    """One prompt in both libraries.

    Attributes:
        text: the prompt.
        ids: its tokens.
        greatest_difference: of the logits at all its positions.
        greatest_logit: the largest logit, which the difference is compared with.
        equal_ids: whether their tokenizer gives the same ids.
        continuation: what this model writes after it, always the most probable token.
        equal_continuation: whether theirs writes the same.
    """

    text: str
    ids: tuple[int, ...]
    greatest_difference: float
    greatest_logit: float
    equal_ids: bool
    continuation: str
    equal_continuation: bool


@dataclass(frozen=True)
class Proof:
    """The proof of an export.

    Attributes:
        form: the form.
        architecture: the foreign class.
        prompts: each prompt in both libraries.
        versions: of the libraries.
    """

    form: str
    architecture: str
    prompts: tuple[PromptProof, ...]
    versions: Mapping[str, str]

    @property
    def greatest_difference(self) -> float:
        """The greatest difference of logits of all prompts."""
        return max(prompt.greatest_difference for prompt in self.prompts)

    @property
    def relative_difference(self) -> float:
        """The greatest difference as a share of the largest logit of its prompt."""
        return max(one.greatest_difference / max(one.greatest_logit, 1e-30) for one in self.prompts)

    @property
    def equal_text(self) -> bool:
        """Whether every continuation is the same."""
        return all(prompt.equal_continuation for prompt in self.prompts)

    def plain(self) -> dict[str, Any]:
        """PROOF.json."""
        return {
            "form": self.form,
            "architecture": self.architecture,
            "greatest_difference": self.greatest_difference,
            "relative_difference": self.relative_difference,
            "equal_greedy_text": self.equal_text,
            "prompts": [asdict(prompt) for prompt in self.prompts],
            "versions": dict(self.versions),
        }


def require_transformers() -> Any:
    """The package.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module("transformers")
    except ImportError:
        raise UsageError(
            "the proof opens the export in transformers, which is not installed: pip install 'vitral[interop]', or "
            "--no-proof"
        ) from None


def prove(model: Transformer, tokenizer: Tokenizer, folder: Path, form: str, architecture: str) -> Proof:
    """Open an export in transformers and compare.

    Raises:
        UsageError: it cannot be opened, gives other tokens, or the logits differ by more than `MOST_DIFFERENCE`.
    """
    package = require_transformers()
    model.eval()
    package.utils.logging.disable_progress_bar()
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        try:
            theirs = package.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype="auto").eval()
            reader = package.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # whatever a foreign library raises
            raise UsageError("proof: transformers cannot open the export ({error})", error=_line(error)) from None
        found = tuple(_compared(model, tokenizer, theirs, reader, ids) for ids in _prompts(model, tokenizer))
    proof = Proof(form, architecture, found, {name: importlib.metadata.version(name) for name in _PACKAGES})
    if not all(prompt.equal_ids for prompt in found):
        raise UsageError("proof: the tokenizer gives other ids in transformers; nothing was exported")
    if not proof.relative_difference <= MOST_DIFFERENCE:
        raise UsageError(
            "proof: the logits differ by {difference:.2g} of the largest; nothing was exported",
            difference=proof.relative_difference,
        )
    return proof


_PACKAGES = ("vitral", "torch", "transformers", "tokenizers", "safetensors")


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _prompts(model: Transformer, tokenizer: Tokenizer) -> list[list[int]]:
    """Beginnings of a text that the model itself writes."""
    length = min(model.config.context_length, LONGEST)
    written = generate(model, tokenizer, [""], max_tokens=length, sampling=Sampling(), seed=0)[0]
    ids = [int(token) for token in tokenizer.encode(written.text)] or [tokenizer.start]
    ids = (ids * length)[:length]
    return [ids[:size] for size in sorted({*(min(size, length) for size in BEGINS), length})]


def _compared(model: Transformer, tokenizer: Tokenizer, theirs: Any, reader: Any, ids: list[int]) -> PromptProof:
    tokens = torch.tensor([ids])
    one, other = model(tokens), theirs(tokens).logits
    text = tokenizer.decode(ids)
    equal_ids = list(reader.encode(text, add_special_tokens=False)) == tokenizer.encode(text).tolist()
    room = max(0, min(GREEDY_TOKENS, model.config.context_length - len(ids)))
    ours = _greedy(model, tokens, room)
    said = _greedy(lambda read: theirs(read).logits, tokens, room)
    return PromptProof(
        text,
        tuple(ids),
        float((one - other).abs().max()),
        float(one.abs().max()),
        equal_ids,
        tokenizer.decode(ours),
        ours == said,
    )


def _greedy(logits: Any, tokens: Tensor, room: int) -> list[int]:
    for _step in range(room):
        tokens = torch.cat([tokens, logits(tokens)[:, -1:].argmax(-1)], dim=1)
    return tokens[0, tokens.shape[1] - room :].tolist()
