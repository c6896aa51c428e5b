"""The configuration of a corpus: source, tokenizer, split and training text."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from vitral.core.config import Config
from vitral.core.language import _
from vitral.data.alphabet import PAD
from vitral.data.answers import MARKERS, Records
from vitral.data.formats import codec_name
from vitral.data.tasks import QUESTIONS, TASKS, TaskConfig


class CharConfig(Config):
    """One token per distinct character of the text, and `<PAD>`."""

    name: Literal["char"] = "char"


class ByteConfig(Config):
    """One token per byte of the text's UTF-8."""

    name: Literal["byte"] = "byte"


class BPEConfig(Config):
    """Byte-pair encoding: 256 bytes plus merges learned from the training split, up to `vocab_size` tokens."""

    name: Literal["bpe"] = "bpe"
    vocab_size: int = Field(default=512, ge=256, le=1_000_000)


class FileConfig(Config):
    """The tokenizer of an imported model, from its `tokenizer.json`; only a run that begins from that model has it."""

    name: Literal["file"] = "file"


def _from_a_name(value: Any) -> Any:
    """A bare name, as in `"bpe:1024"`, stands for its table."""
    if not isinstance(value, str):
        return value
    name, colon, size = value.partition(":")
    return {"name": name, **({"vocab_size": int(size) if size.isdecimal() else size} if colon else {})}


def _different(specials: tuple[str, ...]) -> tuple[str, ...]:
    if len({PAD, *specials}) <= len(specials):
        raise ValueError(_("special tokens must differ from one another and from {pad}", pad=PAD))
    return specials


FromName = BeforeValidator(_from_a_name)
TokenizerConfig = Annotated[CharConfig | ByteConfig | BPEConfig | FileConfig, Field(discriminator="name"), FromName]

MOST_SPECIAL = 100
"""Maximum length of a special token in characters."""


TASK = "task"
"""The source of a generated task."""
TASK_SOURCES = tuple(f"{TASK}:{name}" for name in TASKS)
"""What users write for each."""
_OF_A_TASK = {"task", "share", "specials"}
"""The keys that a generated task can have."""
_NOT_OF_RECORDS = ("split", "field", "works", "num_works", "train_on", "draw")
"""The keys that records cannot have."""

Pattern = Annotated[str, Field(min_length=1, max_length=1000)]
Patterns = Annotated[tuple[Pattern, ...], Field(strict=False)]
SpecialToken = Annotated[str, Field(min_length=1, max_length=MOST_SPECIAL)]


class CorpusConfig(Config):
    r"""The text a model is trained on, and how it is read, tokenized and split.

    Attributes:
        source: a corpus name, a file or a folder; a name takes precedence over a file of that name (write `./name`).
            "task:NAME" is the task of that name.
        tokenizer: `"char"`, `"byte"`, `"bpe"`, `"bpe:1024"` (tokens in the vocabulary), or a table such as
            `{name = "bpe", vocab_size = 1024}`.
        split: `"blocks"` holds out blocks spread over the text, `"tail"` its end, `"nanogpt"` its last tenth as both
            validation and test split, for comparison with nanoGPT; `"works"` holds out whole works (see `works`);
            `"one-work"` takes all three splits from one work, which `draw` chooses among the long ones.
        encoding: the encoding of the files, any that Python knows, such as `"shift_jis"`. Default: UTF-8.
        field: of JSON lines, the key whose string is a text, such as `"text"`; `"message.content"` is the key of an
            object inside. The texts are joined by `separator`. Default: files are read as they are.
        glob: of a folder, only the files that match a pattern, or one of several. A pattern without `/` is compared
            with a file's name, one with `/` with its path in the folder, where `**` is any number of folders; capital
            letters count. Hidden files are never read. Default: all files that are text.
        newlines: `"lf"` turns `\r\n` and a lone `\r` into `\n`; `"keep"` leaves them unchanged.
        separator: text inserted between the files of a folder, and between the texts of JSON lines.
        share: fraction of the training blocks to train on; a smaller share is a subset of a larger one. Default: all.
        works: lines that begin the works of a text, where `*` stands for any characters: `["CHAPTER *"]`. Default: the
            files of a folder, or the titles in the text's own table of contents.
        num_works: train on so many works, drawn from those that are long enough; with `share`, on that share of the
            whole training split in equal parts from each. Default: on all.
        train_on: with `"one-work"`, `"others"` trains on all other works instead of the rest of that one.
        draw: number of the random draw of `share`, `num_works` and `"one-work"`, such as the seed; with it a share is
            exact to the character. Default: one fixed draw of whole blocks.
        also: further training texts, given like `source`, never used for testing; `share` applies to each.
        specials: special tokens, strings such as `"<|endoftext|>"` that are one token each wherever they occur; one
            that equals `separator` separates the files of a folder by this token. Default: none.
        records: "pairs" (keys `source` and `target`), "chats" (`messages`) or "labels" (`text` and `label`) in JSON
            lines; only their answers count in a loss. Default: a text.
        task: a generated task instead of a text, a table with its name, "repeats", "markov", "recall", "copy",
            "reverse", "sort", "add" or "dates", and its settings; `source` is "task" then. See `vitral.data.tasks`.
            Default: none.
        replacement: fine-tuning only: the character that replaces those without a token, which otherwise get new
            tokens (characters) or their bytes. Default: none.

    `share`, `num_works`, `train_on` and `also` do not change the validation and test splits; `draw` does
    for `"one-work"` only.

    >>> CorpusConfig.parse({"source": "my.txt", "tokenizer": "bpe"}).tokenizer
    BPEConfig(name='bpe', vocab_size=512)
    """

    source: str = Field(default="sample", min_length=1)
    tokenizer: TokenizerConfig = Field(default_factory=CharConfig)
    split: Literal["blocks", "tail", "nanogpt", "works", "one-work"] = "blocks"
    encoding: Annotated[str, Field(max_length=100), AfterValidator(codec_name)] | None = None
    field: str | None = Field(default=None, min_length=1, max_length=1000)
    glob: Annotated[Patterns, Field(max_length=100)] | None = None
    newlines: Literal["lf", "keep"] = "lf"
    separator: str = "\n\n"
    share: float | None = Field(default=None, gt=0, le=1)
    works: Annotated[Patterns, Field(max_length=1000)] | None = None
    num_works: int | None = Field(default=None, ge=1)
    train_on: Literal["others"] | None = None
    draw: int | None = Field(default=None, ge=0, lt=2**63)
    also: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] | None = None

    specials: Annotated[tuple[SpecialToken, ...], Field(strict=False), AfterValidator(_different)] | None = None
    records: Records | None = None
    task: Annotated[TaskConfig, FromName] | None = None
    replacement: str | None = Field(default=None, min_length=1, max_length=1)

    @property
    def is_drawn(self) -> bool:
        """Whether `draw` has anything to draw."""
        return self.share is not None or self.num_works is not None or self.split == "one-work"

    @model_validator(mode="before")
    @classmethod
    def _complete_a_task(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        source, task = data.get("source"), data.get("task")
        if isinstance(source, str) and source.startswith(f"{TASK}:"):
            named = {"name": source.removeprefix(f"{TASK}:")}
            task = named | task if isinstance(task, dict) else task or named
            data = {**data, "source": TASK}
        if task is None:
            return data
        name = task.get("name") if isinstance(task, dict) else getattr(task, "name", task)
        kind = {"records": "pairs"} if name in QUESTIONS else {}
        return {"source": TASK, **kind, **data, "task": task}

    @model_validator(mode="after")
    def _keys_fit(self) -> "CorpusConfig":
        """A task, and records, have fewer keys than a text; the special tokens of records are declared."""
        usual, keys = CorpusConfig.model_construct(), _NOT_OF_RECORDS if self.records else ()
        if self.task is not None:
            records = "pairs" if self.task.name in QUESTIONS else None
            usual = usual.model_copy(update={"source": TASK, "records": records})
            keys = [key for key in type(self).model_fields if key not in _OF_A_TASK]
        for key in keys:
            if getattr(self, key) != getattr(usual, key):
                raise ValueError(_("{key}: a generated task or records cannot have this; leave it out", key=key))
        if self.records:
            declared = dict.fromkeys([*(self.specials or ()), *MARKERS[self.records]])
            object.__setattr__(self, "specials", tuple(declared))
        return self

    @field_validator("share", "works", "glob", "also", "specials", mode="before")
    @classmethod
    def _unset_default_values(cls, value: Any) -> Any:
        """Values that mean the default become None, so that equal meanings have equal configurations."""
        return None if (value == 1 and value is not True) or value in ([], ()) else value
