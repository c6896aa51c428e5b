"""The words that the shell's completion offers. Fast: names are those of files, and nothing heavy is imported.

Where nothing is offered the shell completes file names by its own rules, which also know names that need quotes.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path

EXERCISE_KINDS = ("attention", "multi-head", "block", "positions", "choice", "loss", "cross-attention")
"""Those of `vitral.explanation`, which loads slowly."""
EXAMPLE_ENDINGS = (".toml", ".md", ".markdown", ".tex", ".txt", ".csv", ".tsv", ".xlsx")

Offer = Callable[[str], Iterable[str]]
"""The words to offer for the beginning of a word."""

TEXTS = (
    "alice",
    "bras-cubas",
    "dom-casmurro",
    "frankenstein",
    "machado",
    "os-lusiadas",
    "python",
    "sample",
    "sample-pt",
    "shakespeare",
    "tinyshakespeare",
)
"""The names of `vitral.data.corpus_names`, whose import takes seconds."""
PLAIN = re.compile(r"[\w.,+@%/-]+")
"""Words that every shell takes as they are."""


def completing(*offers: Offer) -> Callable[[str], list[str]]:
    """The callback of an argument that is one of several things."""

    def complete(incomplete: str) -> list[str]:
        found = set[str]()
        for offer in offers:
            with contextlib.suppress(OSError):  # it would be printed into the line that the user is typing
                found.update(offer(incomplete))
        return sorted(word for word in found if word.startswith(incomplete) and PLAIN.fullmatch(word))

    return complete


def presets(incomplete: str) -> Iterator[str]:
    """Presets."""
    return _stems("runs/_presets")


def studies(incomplete: str) -> Iterator[str]:
    """Named studies."""
    return _stems("studies/catalogue")


def examples(incomplete: str) -> Iterator[str]:
    """Worked examples."""
    return _stems("explanation/gallery")


def kinds(incomplete: str) -> Iterator[str]:
    """Kinds of exercises."""
    yield from EXERCISE_KINDS


def texts(incomplete: str) -> Iterator[str]:
    """Named texts, and those in the folder VITRAL_CORPORA."""
    yield from TEXTS
    if own := os.environ.get("VITRAL_CORPORA"):
        yield from (path.stem for path in Path(own).glob("*.txt"))


def runs(incomplete: str) -> Iterator[str]:
    """Run folders: those in the folder that is typed, and those in runs/."""
    return _folders(incomplete, "runs/", ("config.toml", "steps"))


def study_folders(incomplete: str) -> Iterator[str]:
    """Folders of studies: those in the folder that is typed, and those in studies/."""
    return _folders(incomplete, "studies/", ("study.json",))


def files(incomplete: str) -> list[str]:
    """Files and folders; a folder that is the only one is opened."""
    found = list(_entries(incomplete))
    if len(found) == 1 and found[0].endswith("/"):
        return [*_entries(found[0])]
    return found


def toml_files(incomplete: str) -> Iterator[str]:
    """TOML files."""
    return (word for word in _entries(incomplete) if word.endswith(".toml"))


def example_files(incomplete: str) -> Iterator[str]:
    """Files that may be worked examples; `vitral.explanation.documents` has the same endings, but loads slowly."""
    return (word for word in _entries(incomplete) if word.endswith(EXAMPLE_ENDINGS))


def _stems(folder: str) -> Iterator[str]:
    inside = resources.files("vitral").joinpath(*folder.split("/"))
    return (file.name.removesuffix(".toml") for file in inside.iterdir() if file.name.endswith(".toml"))


def _folders(incomplete: str, usual: str, contents: tuple[str, ...]) -> Iterator[str]:
    """The folders with these contents, without a slash at the end: nothing inside them is asked for."""
    beginnings = [incomplete, usual] if usual.startswith(incomplete) and Path(usual).is_dir() else [incomplete]
    for word in itertools.chain.from_iterable(_entries(beginning) for beginning in beginnings):
        if all(os.path.exists(word + name) for name in contents):
            yield word.rstrip("/")


def _entries(incomplete: str) -> Iterator[str]:
    """The entries of the typed folder, folders with a slash; hidden entries only if their dot is typed."""
    folder, slash, start = incomplete.rpartition("/")
    for entry in os.scandir(folder + slash or "."):
        if entry.name.startswith(start) and (start or not entry.name.startswith(".")):
            yield folder + slash + entry.name + ("/" if entry.is_dir() else "")


complete_preset = completing(presets, toml_files)
complete_start = completing(presets, texts, files)
complete_text = completing(texts, runs, files)
complete_run = completing(runs)
complete_counted = completing(presets, texts, runs, files)
complete_checkup = completing(runs, study_folders)
complete_study = completing(studies, toml_files)
complete_example = completing(examples, example_files)
complete_kind = completing(kinds, toml_files)
complete_explained = completing(examples, runs, example_files)
