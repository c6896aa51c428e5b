"""Tokens that other programs made, with the `tokenizer.json` that made them in the same folder.

Known are `.bin` files of nanoGPT (16-bit ids and nothing else) and of llm.c and modded-nanogpt (after a header of 256
numbers), and folders `train` and `val` of litdata (`index.json`), as litgpt makes them. What has "val" in its name is
for validation, and for test if nothing has "test" in its name. Each file is a segment.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.files import readable
from vitral.data.long_texts import PIECE, LongText
from vitral.data.split import SPLITS, Blocks
from vitral.data.tokenizers import Tokenizer, file_tokenizer
from vitral.data.tokens import Piece

TOKENIZER, INDEX = "tokenizer.json", "index.json"
_HEADER = 256 * 4
_MAGIC = {20240520: "<u2", 20240801: "<u4"}
"""Of llm.c: ids of GPT-2 and of Llama 3."""
_LITDATA = {"16": "<i4", "18": "<i8", "20": "<u2"}
"""Its numbers of the dtypes of PyTorch: int32, which litgpt writes, int64 and uint16."""


def are_shards(folder: Path) -> bool:
    """Whether a folder holds tokens of another program."""
    return (folder / "train" / INDEX).is_file() or any("train" in path.name for path in folder.glob("*.bin"))


@dataclass(frozen=True, eq=False)
class Shards:
    """Tokens of another program.

    Attributes:
        path: the folder.
    """

    path: Path

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, of `tokenizer.json`.

        Raises:
            UsageError: it is not there, or cannot be used.
        """
        if not (self.path / TOKENIZER).is_file():
            raise UsageError(
                "{path}: tokens without their tokenizer; copy the {file} that made them into this folder",
                path=self.path,
                file=TOKENIZER,
            )
        with readable(self.path / TOKENIZER):
            return file_tokenizer((self.path / TOKENIZER).read_text("utf-8", "replace"))

    @cached_property
    def files(self) -> list[tuple[str, np.ndarray]]:
        """The split and the tokens of each file, by memory map, in the order of the splits.

        Raises:
            UsageError: a file cannot be read, there are none for validation, or a token is not in the vocabulary.
        """
        by_split: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
        try:
            for name, tokens in sorted(self._read(), key=lambda one: one[0]):
                by_split["test" if "test" in name else "validation" if "val" in name else "train"].append(tokens)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError("{path}: cannot be read ({reason})", path=self.path, reason=error) from None
        by_split["test"] = by_split["test"] or by_split["validation"]
        for split, files in by_split.items():
            if not any(map(len, files)):
                raise UsageError(
                    "{path}: no tokens for {split}; the name of a file for validation has val in it",
                    path=self.path,
                    split=split,
                )
        files, size = [(split, tokens) for split in SPLITS for tokens in by_split[split]], self.tokenizer.vocab_size
        if (most := max(int(tokens.max(initial=0)) for _, tokens in files)) >= size:
            raise UsageError(
                "{path}: a token is {token:,}, but {file} has {size:,}; copy the one that made the tokens",
                path=self.path,
                token=most,
                file=TOKENIZER,
                size=size,
            )
        return files

    def _read(self) -> Iterator[tuple[str, np.ndarray]]:
        for path in self.path.glob("*.bin"):
            head = np.fromfile(path, "<i4", 3)
            dtype = _MAGIC.get(int(head[0])) if head.size == 3 and head[1] == 1 else None
            begin, shape = (_HEADER, int(head[2])) if dtype else (0, None)
            yield path.name, np.memmap(path, dtype or "<u2", "r", begin, shape)
        for index in self.path.glob(f"*/{INDEX}"):
            manifest = json.loads(index.read_bytes())
            dtype = _LITDATA[manifest["config"]["data_format"][0].removeprefix("no_header_tensor:")]
            for chunk in manifest["chunks"]:
                offset, file = 4 * (chunk["chunk_size"] + 2), index.with_name(chunk["filename"])
                tokens = np.memmap(file, dtype, "r", offset, (chunk["dim"],))
                yield f"{index.parent.name}/{file.name}", tokens

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the tokenizer and of the tokens of each file, in hexadecimal."""
        digest = hashlib.sha256(self.tokenizer.data["document"].encode())
        for split, tokens in self.files:
            digest.update(f"{split} {tokens.dtype.str} {tokens.size}\n".encode() + hashlib.sha256(tokens.data).digest())
        return digest.hexdigest()

    @property
    def num_bytes(self) -> int:
        """Bytes of the tokens."""
        return sum(tokens.nbytes for _, tokens in self.files)

    @cached_property
    def _texts(self) -> list[LongText]:
        """The text of each file, decoded where it is needed, in parts that begin at a character."""
        size = self.tokenizer.vocab_size
        spelled = [self.tokenizer.token_bytes(token) for token in range(size)]
        counts = np.array([sum(byte & 0b1100_0000 != 0b1000_0000 for byte in token) for token in spelled])
        begins = np.array([token[:1] < b"\x80" or token[:1] >= b"\xc0" for token in spelled])
        texts = list[LongText]()
        for _split, tokens in self.files:
            borders = [0]
            while borders[-1] < tokens.size:
                end = borders[-1] + PIECE
                while end < tokens.size and not begins[tokens[end]]:
                    end += 1
                borders.append(min(end, tokens.size))
            parts = [tokens[begin:end] for begin, end in pairwise(borders)]
            texts.append(LongText([(int(counts[part].sum()), partial(self.tokenizer.decode, part)) for part in parts]))
        return texts

    @cached_property
    def text(self) -> LongText:
        """The text of all files, in the order of the splits."""
        return LongText([part for text in self._texts for part in text.parts])

    def blocks(self) -> dict[str, Blocks]:
        """The characters of each split."""
        ends = np.cumsum([0, *map(len, self._texts)])
        spans = np.stack([ends[:-1], ends[1:]], axis=1)
        of = np.array([split for split, _ in self.files])
        return {split: Blocks(spans[of == split], apart=True) for split in SPLITS}

    def pieces(self) -> Iterator[Piece]:
        """The tokens of all splits, to be stored."""
        for split, tokens in self.files:
            for begin in range(0, tokens.size, PIECE):
                yield Piece(split, begin == 0, tokens[begin : begin + PIECE])
