"""Datasets: load, split and tokenize a text, and keep the tokens in the cache; the text of a run found again.

A run's folder may come from a stranger, so nothing in it starts a download, and nothing but regular files is opened.
What was read is used only if its SHA-256 agrees.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from vitral.core.errors import UsageError
from vitral.core.files import sha256, sweep
from vitral.core.language import N_, _, storable
from vitral.data.alphabet import MASK, label_text
from vitral.data.answers import ANSWER, END, MARKERS, Answers, labels_in
from vitral.data.batches import Split
from vitral.data.config import BPEConfig, CorpusConfig, FileConfig
from vitral.data.corpora import COLLECTIONS, load_corpus, without_equal
from vitral.data.long_texts import Text, hash_text, joined_text
from vitral.data.shards import Shards
from vitral.data.sources import SOURCES, downloads
from vitral.data.split import SPLIT_SEED, SPLITS, Blocks
from vitral.data.texts import Corpus, TextRecord
from vitral.data.tokenizers import Tokenizer, alphabet_counts, build_tokenizer, grown, growth_notes
from vitral.data.tokens import encoded, stored, token_folder
from vitral.data.works import cut, refuse_unused

_PARTS = re.compile(r"[\\/]")
_READ_FROM = re.compile(r"^(Read from ).*[\\/]")


def without_folders(record: Any, key: str = "") -> Any:
    """The record of a text for a page that is published: its files without the folders of this machine."""
    if isinstance(record, Mapping):
        return {name: without_folders(value, name) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [without_folders(item, key) for item in record]
    if key == "path":
        return _PARTS.split(record)[-1]
    return _READ_FROM.sub(r"\1", record) if key == "notes" else record


class RecordedText(TextRecord):
    """The text of a dataset, as a run's `corpus.json` has it.

    Attributes:
        fingerprint: of the dataset.
    """

    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


def load_recorded(
    text: TextRecord,
    source: str,
    config: CorpusConfig,
    *,
    where: str = "",
    given: str | Path | None = None,
) -> Corpus:
    """The text of a run: at its place, or where the user says it is now. Nothing is ever downloaded.

    Args:
        text: what the run recorded.
        source: the source in its configuration: a name, a file or a folder, which may lie at the recorded path too.
        config: the corpus configuration of the run.
        where: the beginning of an error message.
        given: the text as the user gives it now (a file, a folder or a name).

    Raises:
        UsageError: no place has it, or what is given now is another text.
    """
    reasons = list[str]()
    for candidate in [str(given)] if given is not None else dict.fromkeys([source, text.path or source]):
        try:
            corpus = load_corpus(config.model_copy(update={"source": candidate}), may_download=False)
        except UsageError as error:
            reasons.append(str(error)[:400])
        else:
            if corpus.sha256 == text.sha256:
                return replace(corpus, name=text.name)
            reasons.append(_("{path} has another SHA-256", path=candidate))
    can_be_fetched = source in {*SOURCES, *COLLECTIONS}
    raise UsageError(
        "{where}the text {name!r} ({number:,} bytes, SHA-256 {hash}…) was not found ({why}); give it with --corpus "
        "FILE{download}",
        where=where,
        name=source,
        number=text.bytes,
        hash=text.sha256[:12],
        why="; ".join(reasons),
        download=_(", or download it with vitral corpus {name}", name=source) if can_be_fetched else "",
    )


LEARN_FROM = 1 << 24
"""Characters of a long text from which byte-pair merges are learned, in evenly spaced training blocks."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A tokenized text, with everything a run records about its origin.

    Attributes:
        config: the corpus configuration.
        text: the text's name, size and SHA-256.
        notes: changes made to the text, one sentence each.
        tokenizer: the tokenizer.
        splits: `train`, `validation`, `test` -> tokens.
        fingerprint: hash of the text, the tokenizer and the split, in hexadecimal: equal fingerprints, equal tokens.
        store_sha256: SHA-256 of the stored tokens, in hexadecimal.
        trained_on: how the training split differs from the text's own, as plain data; empty if it does not.
        blocks: split -> its blocks in the text, before the configuration takes a part of the training split.
        works: where splits are by works, split -> titles of its works.
        remarks: what training says of it besides its notes.
        problems: see `CorpusReport.loss_problems`; found by training.
        cut: the method of the split, and the characters of a block.
    """

    config: CorpusConfig
    text: TextRecord
    notes: tuple[str, ...]
    tokenizer: Tokenizer
    splits: dict[str, Split]
    fingerprint: str
    store_sha256: str = ""
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    blocks: Mapping[str, Blocks] = field(default_factory=dict)
    works: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    cut: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its text."""
        return self.text.name

    @property
    def answers(self) -> Answers | None:
        """The tokens that mark the answers of its records; None of a text."""
        return self.splits["train"].answers

    @property
    def labels(self) -> list[str]:
        """The labels of labelled texts, in the order of their numbers."""
        return [self.tokenizer.decode(label) for label in self.answers.labels] if self.answers else []

    def describe(self) -> dict[str, Any]:
        """The description saved with a run (`corpus.json`), JSON-ready."""
        described = {
            "source": self.config.source,
            **self.text.plain(),
            "split": {
                **self.cut,
                "seed": SPLIT_SEED,
                "tokens": {split: int(self.splits[split].tokens.size) for split in SPLITS},
                **({"works": {split: list(self.works[split]) for split in SPLITS}} if self.works else {}),
            },
            "tokenizer": self.tokenizer.name,
            "vocab_size": self.tokenizer.vocab_size,
            "notes": list(self.notes),
            "problems": list(self.problems),
            "labels": self.labels,
            "fingerprint": self.fingerprint,
            "store_sha256": self.store_sha256,
            "trained_on": dict(self.trained_on),
        }
        return storable({key: value for key, value in described.items() if value or key == "notes"})

    def load_text(self) -> Corpus:
        """The text, read again from its place and never downloaded.

        Raises:
            UsageError: it is no longer there, or has changed.
        """
        return load_recorded(self.text, self.config.source, self.config)


def prepare(
    config: CorpusConfig,
    *,
    tokenizer: Tokenizer | None = None,
    grow: bool = False,
    corpus: Corpus | None = None,
) -> Dataset:
    """Load, split, tokenize and store a text, or open its stored tokens.

    Args:
        config: text, tokenizer and split.
        tokenizer: an existing tokenizer, for example of a run, to use instead of building the one in `config`.
        grow: whether characters without a token, unless `config.replacement` replaces them, and special tokens of
            `config` are added to the existing tokenizer (`vitral.data.tokenizers`).
        corpus: the text, if it is already loaded.

    Raises:
        UsageError: the text cannot be used: see `refuse_unused`, `load_corpus` and `cut`; or the tokenizer given has no
            token for one of its characters or for the replacement.
        StorageError: the tokens cannot be stored.
    """
    refuse_unused(config)
    corpus = corpus or load_corpus(config)
    others = [load_corpus(config.model_copy(update={"source": name})) for name in config.also or ()]
    notes = list[str]()
    if tokenizer is None and config.replacement is not None:
        raise UsageError(
            "corpus.replacement: the tokenizer is made from this text and knows all of it; leave it "
            "out (it is for fine-tuning, --init-from)"
        )
    if tokenizer is not None and (grow or config.replacement is not None):
        texts = [one.text for one in (corpus, *others)]
        former = tokenizer
        tokenizer = grown(
            former, [] if config.replacement is not None else texts, (config.specials or ()) if grow else ()
        )
        notes = [*growth_notes(tokenizer, former), *_replacement_notes(config, texts, tokenizer)]
    return _tokenized(config, corpus, others, tokenizer, notes=notes)


def prepare_recorded(
    config: CorpusConfig,
    recorded: Mapping[str, Any],
    *,
    tokenizer: Tokenizer,
    run_folder: Path,
    corpus: str | Path | None = None,
) -> Dataset:
    """The dataset of an existing run, from its text on this machine; nothing is ever downloaded.

    `resume`, `Run.dataset` and `doctor` call this, `prepare` is for new runs. The text is looked for at `corpus`, if it
    is given, else at `config.source` (a name, or a path relative to the current folder) and at the absolute path that
    the run recorded, and it is used only if its SHA-256 agrees.

        config = CorpusConfig.parse(run_config["corpus"])
        dataset = prepare_recorded(config, corpus_json, tokenizer=tokenizer, run_folder=path, corpus=option)

    Args:
        config: the corpus configuration of the run.
        recorded: the run's `corpus.json`, as written by `Dataset.describe`.
        tokenizer: the run's tokenizer.
        run_folder: the run's folder, for messages.
        corpus: the text as the user gives it now (`--corpus`): a file, a folder or a name. If it is another text, it
            is refused, and nothing else is tried.

    Raises:
        UsageError: the document is malformed, the text is not found, or is cut into other tokens than the run's.
        StorageError: the tokens cannot be stored.
    """
    document, where = f"{run_folder}/corpus.json", f"{run_folder}: "
    text, trained_on = RecordedText.of(recorded, document), recorded.get("trained_on") or {}
    others = trained_on.get("also", []) if isinstance(trained_on, Mapping) else []
    if not isinstance(others, list) or len(others) != len(config.also or ()):
        raise UsageError("{where}: its further training texts are not those of corpus.also; restore it", where=document)
    main = load_recorded(text, config.source, config, where=where, given=corpus)
    also = zip(others, config.also or (), strict=True)
    further = [load_recorded(TextRecord.of(one, document), source, config, where=where) for one, source in also]
    return _tokenized(config, main, further, tokenizer, expected=(text.fingerprint, where))


def _of_shards(config: CorpusConfig, corpus: Corpus, shards: Shards, tokenizer: Tokenizer | None) -> Dataset:
    """The dataset of tokens that another program made.

    Raises:
        UsageError: the configuration asks for something else, or the tokenizer is another.
        StorageError: the tokens cannot be stored.
    """
    only = CorpusConfig(source=config.source, tokenizer=FileConfig()).plain()
    for key, value in config.plain().items():
        if value != only.get(key):
            raise UsageError(
                '{path}: tokens stay as they are; leave corpus.{key} out, and set corpus.tokenizer = "file"',
                path=shards.path,
                key=key,
            )
    tokenizer = tokenizer or shards.tokenizer
    if tokenizer.data.get("document") != shards.tokenizer.data["document"] or tokenizer.declared:
        raise UsageError("{path}: these tokens are of another tokenizer than that of the run", path=shards.path)
    fingerprint = _hash(shards.sha256, tokenizer.plain())
    store = stored(fingerprint, tokenizer.vocab_size, shards.pieces())
    return Dataset(
        config=config,
        text=corpus.record,
        notes=corpus.notes,
        tokenizer=tokenizer,
        splits=store.splits,
        fingerprint=fingerprint,
        store_sha256=store.sha256,
        blocks=shards.blocks(),
        cut={"method": "files"},
    )


def _tokenized(
    config: CorpusConfig,
    corpus: Corpus,
    also: Sequence[Corpus],
    tokenizer: Tokenizer | None,
    *,
    expected: tuple[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Dataset:
    """Split, tokenize and store a text with further ones; refused before that if another dataset is expected."""
    if corpus.shards is not None:
        return _of_shards(config, corpus, corpus.shards, tokenizer)
    if config.records and not config.task:
        corpus, *also = without_equal([corpus, *also])
    text_hash = hash_text(corpus.text)
    made = cut(config, corpus, text_hash, also)
    corpus_notes = [note for one in (corpus, *also) for note in one.notes]
    if tokenizer is None:
        texts, kind = [(corpus.text, made.blocks["train"]), *made.others], config.tokenizer
        learned_from = list(_to_learn_from(texts)) if isinstance(kind, BPEConfig) else []
        tokenizer = build_tokenizer(config, joined_text([text for text, _blocks in texts], ""), learned_from)
        num_tokens = len(tokenizer.ids)
        if isinstance(kind, BPEConfig) and num_tokens < kind.vocab_size:
            corpus_notes.append(
                N_("The text yields {found:,} tokens instead of {wanted:,}: no other pair occurs twice.").format(
                    found=num_tokens, wanted=kind.vocab_size
                )
            )
    fingerprint = _hash(text_hash, tokenizer.plain(), made.key)
    if expected is not None and fingerprint != expected[0]:
        raise UsageError(
            "{where}its text is unchanged, but the run read or split it in another way; restore [corpus] in "
            "config.toml and tokenizer.json, or use the version of Vitral that made the run",
            where=expected[1],
        )
    for of_the_cache in (token_folder(), downloads()):
        with suppress(OSError):
            sweep(of_the_cache)
    tokens = encoded(corpus.text, made.blocks, tokenizer, made.others, config.replacement)
    store = stored(fingerprint, tokenizer.vocab_size, tokens)
    answers = _answers(config, tokenizer, (corpus, *also))
    splits = {name: replace(split, answers=answers) for name, split in store.splits.items()}
    distinct = ("train", "test") if config.split == "nanogpt" else SPLITS
    return Dataset(
        config=config,
        text=corpus.record,
        notes=(*corpus_notes, *notes, *_special_notes(tokenizer, [store.splits[split] for split in distinct])),
        tokenizer=tokenizer,
        splits=splits,
        fingerprint=fingerprint,
        store_sha256=store.sha256,
        trained_on=made.trained_on,
        blocks=made.splits,
        works=made.works,
        cut=made.method,
    )


def _answers(config: CorpusConfig, tokenizer: Tokenizer, corpora: Sequence[Corpus]) -> Answers | None:
    """The tokens that mark the answers of records.

    Raises:
        UsageError: there is one label only, or there are too many.
    """
    if not config.records:
        return None
    records = (record for one in corpora for record in one.each_record)
    labels = labels_in(records, config.source) if config.records == "labels" else []
    encoded_labels = (tuple(tokenizer.encode(label, replacement=config.replacement).tolist()) for label in labels)
    return Answers(tokenizer.declared[ANSWER], tokenizer.declared[END], tuple(encoded_labels))


def _to_learn_from(texts: Sequence[tuple[Text, Blocks]]) -> Iterator[str]:
    for text, training in texts:
        stride = 1 if isinstance(text, str) else max(1, training.num_characters // LEARN_FROM)
        yield from (text[begin:end] for begin, end in training.chosen(slice(None, None, stride)))


def _special_notes(tokenizer: Tokenizer, splits: Sequence[Split]) -> Iterator[str]:
    """How often the splits contain each special token."""
    there = N_("Special token {token}: {number:,} times.")
    absent = N_("Special token {token}: not in the text; check its spelling.")
    for text, token in tokenizer.declared.items():
        if text in (*MARKERS["chats"], MASK):
            continue
        count = sum(int(np.count_nonzero(split.tokens == token)) for split in splits)
        yield (there if count else absent).format(token=label_text(text), number=count)


def _replacement_notes(config: CorpusConfig, texts: Sequence[Text], tokenizer: Tokenizer) -> Iterator[str]:
    """How many characters of the texts are replaced because the tokenizer has no token for them."""
    if config.replacement is None or tokenizer.name != "char":
        return
    counts = alphabet_counts(texts, list(tokenizer.declared))
    unknown = [count for character, count in counts.items() if character not in tokenizer.alphabet]
    if unknown:
        by = label_text(config.replacement)
        sentence = N_("{number:,} characters, {different:,} different ones without a token, became {replacement}.")
        yield sentence.format(number=sum(unknown), different=len(unknown), replacement=by)


def _hash(*plain: Any) -> str:
    """A hash of plain data in hexadecimal, computed from its JSON with sorted keys."""
    return sha256(json.dumps(plain, sort_keys=True).encode("ascii"))[:32]
