"""docs/interop.md: its commands and its Python run, in their order, each with what it needs made here.

A model of the hub is a small random one of the same form, and a training ends after two steps. What needs another
program is not run.
"""

import json
import re
import shlex
import tomllib
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from foreign import WORDS, of_form, wordpiece, write_source
from nanogpt import of_our_sizes, saved
from notes_model import ROWS, NotesModel, large, notes_tensors
from symbols import symbolic_lengths

from vitral.app.terminal import run
from vitral.data import file_tokenizer

ROOT = Path(__file__).parents[2]
DOCUMENTS = {"en": ROOT / "docs" / "interop.md", "pt": ROOT / "docs" / "pt" / "interop.md"}
TEXT = "To be, or not to be, that is the question.\n" * 60
SPOKEN = "ROMEO:\n" + TEXT


def blocks(document: Path, kinds: str = "sh|python") -> list[tuple[str, str]]:
    """Kind and content of each block of these kinds."""
    return re.findall(rf"^```({kinds})\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def write_own(file: Path) -> None:
    """The weights that the document's map of names is for."""
    tensors = notes_tensors(large(NotesModel(128, 50, 2)))
    safetensors.torch.save_file({name: tensor.detach().clone() for name, tensor in tensors.items()}, file)


def write_characters(file: Path) -> None:
    file.write_text(f"characters = {json.dumps(''.join(map(chr, range(0x100, 0x100 + ROWS))))}\n", encoding="utf-8")


def write_old_map(file: Path) -> None:
    """The document's map for an older nanoGPT, of the sizes that the checkpoint here has."""
    file.write_text(of_our_sizes(blocks(DOCUMENTS["en"], "toml")[0][1]), encoding="utf-8")


STANDS_FOR: dict[str, tuple[str, Callable[[Path], object]]] = {
    "hf:openai-community/gpt2": ("hub/gpt2", lambda folder: write_source(folder, "gpt2", of_form("gpt2"))),
    "hf:google-bert/bert-base-uncased": (
        "hub/bert",
        lambda folder: write_source(folder, "bert", of_form("bert", len(WORDS)), file_tokenizer(wordpiece().to_str())),
    ),
}
"""What the network would bring: what is made here in its place."""
FILES: dict[str, Callable[[Path], object]] = {
    "my.txt": lambda file: file.write_text(TEXT),
    "data/shakespeare_char/input.txt": lambda file: file.write_text(SPOKEN),
    "out-shakespeare-char/ckpt.pt": lambda file: saved(file, rows=len(set(SPOKEN)), bias=False),
    "out/ckpt.pt": lambda file: saved(file, rows=300),
    "model.safetensors": write_own,
    "names.toml": lambda file: file.write_text(blocks(DOCUMENTS["en"], "toml")[1][1], encoding="utf-8"),
    "old.toml": write_old_map,
    "tokens.toml": write_characters,
}
"""What a reader of the document has."""
PACKAGES = ("transformers", "onnx", "onnxscript", "onnxruntime", "gguf")
ELSEWHERE = {"llama-completion", "llama-quantize", "cd", "ollama", "npm", "llama-cli"}
"""Programs that are not run here."""


def commands(block: str) -> list[list[str]]:
    joined = re.sub(r"\\\n\s*", " ", block)
    return [words for words in (shlex.split(line, comments=True) for line in joined.splitlines()) if words]


def here(words: list[str]) -> list[str]:
    """The arguments of a command as they run here."""
    arguments: list[str] = []
    for word in words[1:]:
        name, make = STANDS_FOR.get(word, (word, FILES.get(word)))
        if make is not None and not Path(name).exists():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            make(Path(name))
        arguments.append(name)
    if "--minutes" in arguments:
        at = arguments.index("--minutes")
        arguments[at : at + 2] = ["--set", "training.steps=2"]
    return arguments


def run_command(words: list[str], extras: dict[str, Any]) -> None:
    """Run one line of a shell block, if its program is one of ours."""
    if words[0] == "python":
        wanted = re.fullmatch(r"\.\[([\w,-]+)\]", words[-1])
        assert words[1:5] == ["-m", "pip", "install", "-e"]
        assert wanted is not None
        assert set(wanted[1].split(",")) <= set(extras)
        return
    if words[0] in ELSEWHERE:
        return
    assert words[0] == "vitral", words
    arguments = here(words)
    if "gguf" in arguments:  # llama.cpp proves it
        arguments.append("--no-proof")
    assert run(arguments) == 0, shlex.join(words)


@pytest.fixture
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings(), symbolic_lengths():
        warnings.simplefilter("ignore")  # of foreign libraries
        yield


@pytest.mark.full
@pytest.mark.skipif(not all(map(find_spec, PACKAGES)), reason=f"not all installed: {', '.join(PACKAGES)}")
@pytest.mark.usefixtures("_at_home")
def test_the_commands_and_the_python_of_the_document_run() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = dict[str, Any]()
    for kind, block in blocks(DOCUMENTS["en"]):
        if kind == "python":
            exec(compile(block, "docs/interop.md", "exec"), names)
        for words in commands(block) if kind == "sh" else []:
            run_command(words, extras)


def test_both_documents_have_the_same_commands_and_sections() -> None:
    def work(document: Path) -> list[Any]:
        found: list[Any] = []
        for kind, block in blocks(document, "sh|python|toml"):
            if kind == "sh":
                found += [[word for word in words if " " not in word] for words in commands(block)]
            elif kind == "toml":
                found.append(tomllib.loads(block))
            else:
                found.append(re.sub(r'"[^"]*"', "", block).split())
        return found

    def shape(document: Path) -> list[str]:
        lines = document.read_text(encoding="utf-8").splitlines()
        return [line[:2] for line in lines if re.match(r"## |\| |- |\*\*.*\*\*$", line)]

    english, portuguese = DOCUMENTS.values()
    assert work(english) == work(portuguese)
    assert shape(english) == shape(portuguese)
