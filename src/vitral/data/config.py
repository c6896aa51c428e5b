"""What a user may say about the text: where it comes from, how it is cut into tokens, how it is split."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from vitral.core.config import Config, nearest


class CharConfig(Config):
    """One token for each distinct character of the text, and `<PAD>`."""

    name: Literal["char"] = "char"


class ByteConfig(Config):
    """One token for each of the 256 bytes; the text is its UTF-8."""

    name: Literal["byte"] = "byte"


class BPEConfig(Config):
    """Byte-pair encoding: the 256 bytes, and merges learned from the training blocks until there are `vocab_size`."""

    name: Literal["bpe"] = "bpe"
    vocab_size: int = Field(default=512, ge=256, le=1_000_000)


# The tags begin with a capital so that an error names the key the user wrote, not the member of the union.
_TAGS = {"char": "Char", "byte": "Byte", "bpe": "Bpe"}


def _tag(value: Any) -> str | None:
    name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
    return _TAGS.get(str(name))


TokenizerConfig = Annotated[
    Annotated[CharConfig, Tag("Char")] | Annotated[ByteConfig, Tag("Byte")] | Annotated[BPEConfig, Tag("Bpe")],
    Discriminator(_tag),
]


Passage = Annotated[tuple[str, str], Field(strict=False)]


class CorpusConfig(Config):
    r"""The text a model is trained on, and what is done to it before it reaches the model.

    Attributes:
        source: the name of a corpus, a file, or a folder; a name wins over a file of that name, `./name` is the file.
        tokenizer: `"char"`, `"byte"`, `"bpe"`, or a table such as `{name = "bpe", vocab_size = 1024}`.
        split: `"blocks"` holds out blocks spread over the whole text, `"tail"` holds out its end, `"nanogpt"` its last
            tenth, for validation and test alike, to compare with what nanoGPT reports.
        newlines: `"lf"` turns `\r\n` and a lone `\r` into `\n`; `"keep"` leaves them as they are.
        separator: what is put between the files of a folder.
        share: how much of the training part's blocks is trained on; a smaller share is a part of a larger one. Left
            out: all.
        passages: `[from, to]`, lines of the text: only what stands from the one up to the other is trained on. Left
            out: everything.
        also: further texts, named as `source` is, that are trained on and never tested on; `share` is taken of each.

    None of the last three touches the validation and the test part.

    >>> CorpusConfig.parse({"source": "my.txt", "tokenizer": "bpe"}).tokenizer
    BPEConfig(name='bpe', vocab_size=512)
    """

    source: str = Field(default="sample", min_length=1)
    tokenizer: TokenizerConfig = Field(default_factory=CharConfig)
    split: Literal["blocks", "tail", "nanogpt"] = "blocks"
    newlines: Literal["lf", "keep"] = "lf"
    separator: str = "\n\n"
    share: float | None = Field(default=None, gt=0, le=1)
    passages: Annotated[tuple[Passage, ...], Field(strict=False)] | None = None
    also: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] | None = None

    @field_validator("share", "passages", "also", mode="before")
    @classmethod
    def _unset_what_changes_nothing(cls, value: Any) -> Any:
        """All of the text, and nothing besides, is how it is without these keys: one meaning, one configuration."""
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value == 1
        return None if whole or value in ([], ()) else value

    @field_validator("passages", mode="after")
    @classmethod
    def _begin_somewhere(cls, value: tuple[Passage, ...] | None) -> tuple[Passage, ...] | None:
        if any(not first for first, _ in value or ()):
            raise ValueError("a passage begins with a line of the text, not with an empty one")
        return value

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _accept_a_bare_name(cls, value: Any) -> Any:
        table = {"name": value} if isinstance(value, str) else value
        if isinstance(table, Mapping):
            if "name" not in table:
                raise ValueError(f"a tokenizer's table needs a name, {nearest('', _TAGS)}")
            if _tag(table) is None:
                raise ValueError(f"unknown tokenizer {table['name']!r}, {nearest(str(table['name']), _TAGS)}")
        elif not isinstance(table, CharConfig | ByteConfig | BPEConfig):
            raise ValueError(f"expected a tokenizer's name or a table, not {value!r}, {nearest('', _TAGS)}")
        return table
