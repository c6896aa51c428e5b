"""A GGUF file computed by NumPy in float64, and its tokenizer: a reader that shares no code with the exporter.

As a program it answers questions as the processes of llama.cpp do: `python gguf_model.py FILE CONTEXT`.
"""

import base64
import importlib
import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
CONTROL = 3


class GgufModel:
    """What a file says, by llama.cpp's rules."""

    def __init__(self, path: Path) -> None:
        reader = importlib.import_module("gguf").GGUFReader(path)
        self.data: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
        self.tensors = {one.name: np.array(one.data, dtype=np.float64) for one in reader.tensors}
        self.kind = self.data["general.architecture"]
        self.texts: list[str] = self.data["tokenizer.ggml.tokens"]
        self.ids = {text: token for token, text in enumerate(self.texts)}

    def said(self, key: str) -> Any:
        return self.data.get(f"{self.kind}.{key}")

    def logits(self, ids: list[int]) -> np.ndarray:
        stream = self.tensors["token_embd.weight"][ids]
        if "position_embd.weight" in self.tensors:
            stream = stream + self.tensors["position_embd.weight"][: len(ids)]
        for layer in range(self.said("block_count")):
            block = f"blk.{layer}."
            attended = stream + self.attention(self.norm(stream, f"{block}attn_norm"), block)
            inner = self.norm(stream if self.said("use_parallel_residual") else attended, f"{block}ffn_norm")
            up = self.linear(inner, f"{block}ffn_up")
            if self.kind == "llama":
                gate = self.linear(inner, f"{block}ffn_gate")
                hidden = gate / (1 + np.exp(-gate)) * up
            else:
                hidden = 0.5 * up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
            stream = attended + self.linear(hidden, f"{block}ffn_down")
        if self.kind == "gptneox" or "output.weight" in self.tensors:
            head = self.tensors["output.weight"]
        else:
            head = self.tensors["token_embd.weight"]
        return self.norm(stream, "output_norm") @ head.T

    def norm(self, rows: np.ndarray, name: str) -> np.ndarray:
        weight = self.tensors[f"{name}.weight"]
        if self.kind == "llama":
            epsilon = self.said("attention.layer_norm_rms_epsilon")
            return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + epsilon) * weight
        centred = rows - rows.mean(-1, keepdims=True)
        epsilon = self.said("attention.layer_norm_epsilon")
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * weight + self.tensors[f"{name}.bias"]

    def linear(self, rows: np.ndarray, name: str) -> np.ndarray:
        return rows @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0.0)

    def attention(self, rows: np.ndarray, block: str) -> np.ndarray:
        time, heads = len(rows), self.said("attention.head_count")
        shared = self.said("attention.head_count_kv") or heads
        if self.kind == "llama":
            queries, keys, values = (self.linear(rows, f"{block}attn_{letter}") for letter in "qkv")
        else:
            queries, keys, values = np.split(self.linear(rows, f"{block}attn_qkv"), 3, axis=-1)
        width = queries.shape[1] // heads
        queries = queries.reshape(time, heads, width)
        keys, values = keys.reshape(time, shared, width), values.reshape(time, shared, width)
        if self.kind != "gpt2":
            queries, keys = self.turned(queries), self.turned(keys)
        mixed = []
        for head in range(heads):
            served = head * shared // heads
            scores = queries[:, head] @ keys[:, served].T / np.sqrt(width)
            scores[np.triu_indices(time, 1)] = -np.inf
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            mixed.append(shares / shares.sum(-1, keepdims=True) @ values[:, served])
        return self.linear(np.concatenate(mixed, axis=1), f"{block}attn_output")

    def turned(self, rows: np.ndarray) -> np.ndarray:
        """Neighbouring features turn together; in a GPT-NeoX those half of the turning width apart."""
        width = self.said("rope.dimension_count")
        rates = self.said("rope.freq_base") ** (-np.arange(0, width, 2) / width)
        rates = rates / (self.said("rope.scaling.factor") or 1.0)
        if self.kind == "llama":
            rates = rates / self.tensors.get("rope_freqs.weight", 1.0)
            first, second = slice(0, width, 2), slice(1, width, 2)
        else:
            first, second = slice(0, width // 2), slice(width // 2, width)
        angles = np.outer(np.arange(len(rows)), rates)[:, None]
        cos, sin, one, other = np.cos(angles), np.sin(angles), rows[..., first], rows[..., second]
        found = rows.copy()
        found[..., first], found[..., second] = one * cos - other * sin, one * sin + other * cos
        return found

    def encode(self, text: str) -> list[int]:
        """Byte pairs: special tokens first, then words, then the merge of the lowest rank, leftmost first."""
        types = self.data["tokenizer.ggml.token_type"]
        special = [one for one, kind in zip(self.texts, types, strict=True) if kind == CONTROL]
        ranks = {tuple(one.split(" ")): rank for rank, one in enumerate(self.data["tokenizer.ggml.merges"])}
        pieces = re.split(f"({'|'.join(map(re.escape, special))})", text) if special else [text]
        found: list[int] = []
        for piece in pieces:
            if piece in special:
                found.append(self.ids[piece])
                continue
            for word in WORDS.findall(piece):
                parts = [_LETTERS[byte] for byte in word.encode("utf-8")]
                while len(parts) > 1:
                    pairs = list(pairwise(parts))
                    best = min(range(len(pairs)), key=lambda at: (ranks.get(pairs[at], np.inf), at))
                    if pairs[best] not in ranks:
                        break
                    parts[best : best + 2] = ["".join(pairs[best])]
                found += [self.ids[part] for part in parts if part in self.ids]
        return found

    def decode(self, ids: list[int]) -> str:
        bytes_of = {letter: byte for byte, letter in enumerate(_LETTERS)}
        types = self.data["tokenizer.ggml.token_type"]
        raw = b""
        for token in ids:
            text = self.texts[token]
            raw += text.encode() if types[token] == CONTROL else bytes(bytes_of[letter] for letter in text)
        return raw.decode("utf-8", "replace")


def _letters() -> list[str]:
    """GPT-2's `bytes_to_unicode`."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    table = {byte: chr(byte) for byte in visible} | {byte: chr(256 + at) for at, byte in enumerate(hidden)}
    return [table[byte] for byte in range(256)]


_LETTERS = _letters()


def answer(model: GgufModel, question: dict[str, Any]) -> dict[str, Any]:
    if "text" in question:
        return {"ids": model.encode(question["text"])}
    if "ids" in question:
        return {"text": model.decode(question["ids"])}
    if "logits" in question:
        raw = model.logits(question["logits"]).astype("<f4").tobytes()
        return {"logits": base64.b64encode(raw).decode("ascii")}
    if "greedy" in question:
        ids = list(question["greedy"])
        for _ in range(question["count"]):
            ids.append(int(model.logits(ids)[-1].argmax()))
        return {"ids": ids[len(question["greedy"]) :]}
    return {"ready": True}


if __name__ == "__main__":
    held = GgufModel(Path(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(answer(held, json.loads(line))), flush=True)
