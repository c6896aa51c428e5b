"""The model card of an export: the text, the losses beside the baselines, how to use the model and make it again."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.data import SOURCES
from vitral.data.answers import ANSWER, END
from vitral.data.sources import downloads
from vitral.decoding import asking
from vitral.interop.proof import PROMPT, Draft, Proof
from vitral.model import count_parameters
from vitral.runs import LoadedRun
from vitral.runs.objectives import predicts_next

LICENCES = {"sample": "CC0 1.0", "sample-pt": "public domain"}
GUTENBERG = "public domain in the United States (Project Gutenberg {number})"
UNKNOWN = "not known to Vitral; write it here before you publish this folder"
ORDERS = ("1", "2", "3", "4", "5")
_CARD = """\
---
{front}tags: [vitral]
---

# {run.folder.path.name}

A small language model exported from Vitral in the form `{drafted.form}`: {config.num_layers} blocks, \
{config.num_heads} heads, width {config.d_model}, context {config.context_length} tokens, {run.model.vocab_size:,} \
tokens ({run.tokenizer.name}), {parameters:,} parameters. {purpose}

## Text

{text}

## Proof

{proof}

## Use

{use}

It reads at most {config.context_length} tokens{source}.{refusal}

## Made with

```
{command}
```

Run `{run.sealed.identity.run}`, step {run.step:,}.
"""


ANSWERS = f"It answers as its text does: an answer begins after `{ANSWER}` and ends with `{END}`."
PURPOSES = {
    True: "It is a base model: it continues a text and follows no instructions.",
    False: "It predicts hidden tokens from both sides: it fills gaps, and continues no text.",
}
"""What a model without answers is for, by whether it predicts the next token."""


def card(run: LoadedRun, drafted: Draft, proof: Proof | None, command: str) -> str:
    """README.md of an export, in English as the hub's other cards."""
    config, settings = run.model.config, run.sealed.config
    return _CARD.format(
        run=run,
        drafted=drafted,
        config=config,
        front="".join(f"{line}\n" for line in drafted.front),
        purpose=ANSWERS if settings.corpus.records else PURPOSES[predicts_next(settings.training.objective)],
        parameters=count_parameters(config, run.model.vocab_size),
        text=_origin(run) if run.sealed.imported else f"{_text(run)}\n\n{_losses(run)}",
        proof=_proof(proof, drafted.reader),
        use="\n".join(drafted.use).replace(f'"{PROMPT}"', json.dumps(prompt(run), ensure_ascii=False)),
        source=f", and {config.source_length} of a source" if run.model.encoder else "",
        refusal=" A character that the text did not have is refused." if run.tokenizer.name == "char" else "",
        command=command or f"vitral export {run.folder.path.name} --to {drafted.form} --out FOLDER",
    )


def prompt(run: LoadedRun) -> str:
    """A prompt that the tokenizer accepts: one of characters has only those of its text. A decoder is asked by it."""
    text, tokenizer = PROMPT, run.tokenizer
    try:
        tokenizer.encode(text)
    except UsageError:
        known = tokenizer.decode(range(tokenizer.vocab_size))
        text = next((letter for letter in known if letter.isalpha()), known[:1])
    if run.sealed.config.corpus.records and run.model.encoder is None:
        text = asking(run.model, tokenizer, [text])[0][0]
    return text


def _text(run: LoadedRun) -> str:
    record, begun_from = run.sealed.document("corpus"), run.sealed.descends_from
    name = record.get("name", record.get("source", ""))
    trained = (
        f"Trained on `{name}`: {record.get('characters', 0):,} characters, SHA-256 `{record.get('sha256')}`.\n"
        f"Licence of the text: {licence(record)}."
    )
    if begun_from is None:
        return trained
    return f"{trained}\nIt began with the weights of `{begun_from}`, an imported model, whose licence holds too."


def _origin(run: LoadedRun) -> str:
    origin = run.sealed.imported or {}
    revision = f", revision `{origin['revision']}`" if "revision" in origin else ""
    return (
        f"Imported from `{run.sealed.descends_from}`{revision}; not trained further. Its text and its licence are "
        "those of that model."
    )


def licence(record: Mapping[str, Any]) -> str:
    """The licence of a recorded text, in words."""
    known = known_licence(record)
    return UNKNOWN if known is None else known["sentence"].format(**known)


def known_licence(record: Mapping[str, Any]) -> dict[str, str] | None:
    """The licence of a recorded text, where Vitral knows it: of a bundled text, or of a file of Project Gutenberg.

    A name alone says nothing: a file of one's own can have any.

    Returns:
        The `sentence`, and what stands in its places; None if the licence is not known.
    """
    name, path = str(record.get("source")), record.get("path")
    if path is None:
        return {"sentence": LICENCES[name]} if name in LICENCES else None
    source, file = SOURCES.get(name), Path(str(path))
    number = re.search(r"gutenberg\.org/cache/epub/(\d+)/", source.url) if source else None
    if source is None or number is None:
        return None
    is_theirs = file.name in source.files or file.parent == downloads()
    return {"sentence": GUTENBERG, "number": number[1]} if is_theirs else None


def _losses(run: LoadedRun) -> str:
    """The losses of the exported checkpoint beside the n-gram baselines of the same text."""
    evaluations = [event for event in run.folder.metrics("evaluation") if event["step"] == run.step]
    if not evaluations:
        return "## Losses\n\nThis checkpoint was not evaluated."
    losses = evaluations[-1]
    rows = [(f"this model, {split} split", losses[f"{split}_loss"]) for split in ("validation", "test")]
    with suppress(UsageError):
        orders = (run.sealed.comparable_ngrams() or {}).get("orders", {})
        rows += [(f"{order}-gram, test split", orders[order]) for order in ORDERS if order in orders]
    table = "".join(f"\n| {name} | {loss:.4f} |" for name, loss in rows)
    return f"## Losses\n\n| | nats per token |\n|---|---|{table}"


def _proof(proof: Proof | None, reader: str) -> str:
    if proof is None:
        return f"This export was not opened in {reader} (`--no-proof`)."
    versions = ", ".join(f"{name} {version}" for name, version in proof.versions.items())
    greedy = "the same" if proof.equal_text else "not the same (the two most probable tokens are that close)"
    sentences = (
        f"`PROOF.json`: opened in {reader}, {len(proof.prompts)} prompts, greatest difference of logits "
        f"{proof.greatest_difference:.2g} ({proof.relative_difference:.1g} of the largest); always taking the most "
        f"probable token writes {greedy} text. "
    )
    if proof.cached_difference is not None:
        sentences += (
            f"Token by token with the cache the logits differ by at most {proof.cached_difference:.1g} of the largest. "
        )
    if proof.activation_differences:
        greatest = max(proof.activation_differences.values())
        sentences += f"Each named activation differs by at most {greatest:.1g} of its largest number. "
    return f"{sentences}{versions}."
