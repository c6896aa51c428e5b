"""The identity of a run: everything that determines its numbers, sealed in `run.json` and in every checkpoint."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field

from vitral.core.config import Config
from vitral.core.files import as_json, sha256
from vitral.core.parts import with_sources
from vitral.runs.config import RunConfig, ScheduleConfig, Steps, TrainingConfig, comparable

Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
"""What transformers calls the tokens that begin, end and fill a text."""
TokenId = Annotated[int, Field(ge=0)]


class Parent(Config):
    """The checkpoint of another run whose weights a run started from.

    Attributes:
        run: the other run's identity.
        step: the checkpoint's step.
        manifest: SHA-256 of the checkpoint's manifest.
        special_ids: of `SPECIAL_IDS`, those that it has from a model of another library; None if it has none.
        imported: the name of the model of another library that it descends from; None if there is none.
    """

    run: Hash
    step: Annotated[int, Field(ge=0)]
    manifest: Hash
    special_ids: dict[str, TokenId | list[TokenId]] | None = None
    imported: str | None = None


class Decision(Config):
    """A change of the configuration that was taken while the run was trained, from one step on.

    Attributes:
        step: completed optimizer steps when it was taken; the next step is the first that it affects.
        steps: new number of optimizer steps.
        schedule: new learning rate schedule.
        threads: new number of threads.
        evaluate_every: new number of steps between evaluations.
        parts: own parts whose source is another from then on: the new SHA-256 by `vitral.core.parts.OwnPart.key`.
    """

    step: Annotated[int, Field(ge=0)]
    steps: Steps | None = None
    schedule: ScheduleConfig | None = None
    evaluate_every: Steps | None = None
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    parts: dict[str, Hash] | None = None


class Identity(Config):
    """Everything that determines a run's numbers.

    Attributes:
        run: hash of configuration, text, tokenizer and parent (`new_identity`).
        config: the whole configuration the run began with.
        documents: SHA-256 of the run's JSON files, by name.
        parent: the checkpoint it started from; None for random weights.
        threads: number of threads of its arithmetic when it began.
        decisions: changes taken while it was trained, in order.
    """

    run: Hash
    config: RunConfig
    documents: dict[str, Hash]
    parent: Parent | None = None
    threads: Annotated[int, Field(ge=1)]
    decisions: Annotated[tuple[Decision, ...], Field(strict=False)] = ()

    @property
    def current_threads(self) -> int:
        """The number of threads of the next step."""
        return self.current.training.threads or self.threads

    @property
    def current(self) -> RunConfig:
        """The configuration with every decision applied."""
        config = self.config
        for decision in self.decisions:
            config = decided(config, decision)
        return config


def identity_in(state: Mapping[str, Any], where: str) -> Identity:
    """A run's identity in a checkpoint's state or in run.json.

    Raises:
        UsageError: it is malformed.
    """
    return Identity.parse({key: value for key, value in state.items() if key in Identity.model_fields}, where)


def decided(config: RunConfig, decision: Decision) -> RunConfig:
    """The configuration with one decision applied."""
    given = {name: value for name, value in decision if name in TrainingConfig.model_fields and value is not None}
    config = config.with_training(**given)
    return with_sources(config, decision.parts) if decision.parts else config


def new_identity(
    config: RunConfig, documents: Mapping[str, Mapping[str, Any]], parent: Parent | None = None
) -> Identity:
    """The identity of a new run in this process.

    Its hash is the SHA-256 of configuration, text, tokenizer and parent, never random; keys that do not affect the
    numbers, and the place of the text, do not enter.

    Args:
        config: the whole configuration.
        documents: the JSON files to seal, by name without suffix; among them "corpus" and "tokenizer".
        parent: the checkpoint whose weights the run starts from.
    """
    hashes = {f"{name}.json": document_hash(document) for name, document in documents.items()}
    text = [documents["corpus"].get("sha256"), documents["corpus"].get("fingerprint")]
    hashed = [comparable(config), text, hashes["tokenizer.json"], None if parent is None else parent.plain()]
    return Identity(
        run=sha256(json.dumps(hashed, sort_keys=True).encode("ascii")),
        config=config,
        documents=hashes,
        parent=parent,
        threads=config.training.threads or torch.get_num_threads(),
    )


def document_hash(document: Mapping[str, Any]) -> str:
    """The SHA-256 of a JSON file of a run with this content."""
    return sha256(as_json(dict(document)))
