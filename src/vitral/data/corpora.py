"""Corpora: a text from a name (bundled, downloaded or the user's own), a file, or a folder of files."""

import os
import re
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path

import numpy as np

from vitral.core.config import nearest
from vitral.core.errors import UsageError, printable, reason
from vitral.core.files import are_of_a_run, sha256
from vitral.core.language import N_, _
from vitral.data.alphabet import some_of
from vitral.data.answers import KEYS, KNOWN_KEYS, Records
from vitral.data.config import TASK, TASK_SOURCES, CorpusConfig
from vitral.data.formats import SUFFIXES, parsed_line
from vitral.data.long_texts import PIECE, joined_text
from vitral.data.shards import Shards, are_shards
from vitral.data.sources import SOURCES, fetch
from vitral.data.split import Work, in_a_row
from vitral.data.tasks import Questions, Task, task_texts
from vitral.data.texts import NOTES, Corpus, opened, read_file, reading_notes

BUNDLED = {"sample": "the-window-of-aldermere.txt", "sample-pt": "dom-casmurro.txt"}
"""The files of the bundled texts, under `data/texts`; its README has their sources and licences."""

_BUILT_IN = {
    "sample": N_("The Window of Aldermere, an original play in five acts, bundled with Vitral"),
    "sample-pt": N_("Dom Casmurro, a novel by Machado de Assis, in Portuguese, bundled with Vitral"),
    "python": N_("the source of this Python's standard library: a large text without a download"),
    "machado": N_("dom-casmurro and bras-cubas, one after the other"),
}
COLLECTIONS = {"machado": ("dom-casmurro", "bras-cubas")}
"""Names of several texts, read one after the other."""
_NAME = re.compile(r"\w[\w .-]*")
_NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}
_NAMED_AT_MOST = 3
_FIRST_LINES = 8
"""Lines of a file in which its first line that is not empty is looked for."""
_SURELY_TEXT = {".txt", ".md"}
"""Suffixes of files of a folder that must be text, and are not skipped if they are none."""


def corpus_names() -> dict[str, str]:
    """Every corpus name currently available to `load_corpus`, with a one-line description in English."""
    folder = own_folder()
    own = {
        path.stem: N_("your own {path}").format(path=printable(str(path)))
        for path in sorted(folder.glob("*.txt") if folder else ())
    }
    return {**own, **_BUILT_IN, **{name: source.description for name, source in SOURCES.items()}}


def load_corpus(config: CorpusConfig, *, may_download: bool = True) -> Corpus:
    """Read the text of a configuration, or generate its task.

    A name is searched first in the folder VITRAL_CORPORA (as `NAME.txt`), then among the built-in and the downloadable
    texts, which are downloaded once. Any other source is a file or a folder. A folder contributes all its files that
    are text and match `config.glob`, at any depth, sorted by path, with `config.separator` between them; hidden files
    and folders, and those that Vitral wrote (runs, studies, reports), are left out.

    Args:
        config: source and reading options.
        may_download: whether a text that is not on this machine is downloaded.

    Raises:
        UsageError: the name, file or folder does not exist, cannot be read, is not a text, is a run, or is empty.
        StorageError: a download cannot be stored.
    """
    corpus = _find(config, may_download)
    if not len(corpus.text):
        raise UsageError("{name}: empty, there is no text in it", name=corpus.name)
    return corpus


def _find(config: CorpusConfig, may_download: bool) -> Corpus:
    if config.task is not None:
        return _generated(config.task)
    name = config.source
    if own := _own_file(name):
        return _from_file(name, own, config, noted=True)
    if name in BUNDLED:
        return replace(_from_file(name, Path(__file__).parent / "texts" / BUNDLED[name], config), path=None)
    if name == "python":
        modules = config if config.glob else config.model_copy(update={"glob": ("*.py",)})
        return _of_files(name, Path(sysconfig.get_paths()["stdlib"]), modules, without=_NOT_THE_LIBRARY)
    if name in SOURCES:
        return _from_file(name, fetch(name, may_download), config, noted=True)
    if name in COLLECTIONS:
        parts = [_find(config.model_copy(update={"source": part}), may_download) for part in COLLECTIONS[name]]
        return _joined(name, parts, config)
    with suppress(ValueError):  # the name of a user that no system can have
        name = os.path.expanduser(name)
    path = Path(name)
    if os.path.isdir(path):
        return _from_folder(path, config)
    if os.path.lexists(path):
        return _from_file(path.name, path, config)
    hint = nearest(name, (*corpus_names(), *TASK_SOURCES))
    raise UsageError("corpus {name!r}: no such name, file or folder; {hint}", name=config.source, hint=hint)


def records_in(source: str) -> Records | None:
    """The kind of the records in a file of JSON lines, by the first one; None of any other text.

    Raises:
        UsageError: the file has lines of JSON, and nothing says how they are read.
    """
    path = Path(source)
    is_table = path.suffix.lower() == ".tsv"
    if not path.is_file() or (not is_table and path.suffix.lower() not in SUFFIXES):
        return None
    with opened(path) as file:
        lines = (file.readline(PIECE).decode("utf-8-sig", "replace") for _line in range(_FIRST_LINES))
        line = next(filter(str.strip, lines), "")
    keys = dict.fromkeys(line.split()) if is_table else parsed_line(line, str(path))
    kind: Records | None = next((kind for kind, needed in KEYS.items() if keys.keys() >= {*needed}), None)
    if is_table:
        if kind:
            raise UsageError(
                "{path}: a table; make lines of JSON of its rows, or let its name end in .txt to train on it as a text",
                path=path,
            )
        return None
    if kind is None:
        raise UsageError(
            "{path}: its first line has the keys {keys}; {known}: rename them, read one of them as a text by --field "
            "NAME, or let the name of the file end in .txt to train on its lines as they are",
            path=path,
            keys=_some(map(repr, keys)),
            known=_(KNOWN_KEYS),
        )
    return kind


def own_folder() -> Path | None:
    """The user's folder of texts, VITRAL_CORPORA, if set.

    Raises:
        UsageError: it is not a folder.
    """
    chosen = os.environ.get("VITRAL_CORPORA")
    if not chosen:
        return None
    if not os.path.isdir(chosen):
        raise UsageError("VITRAL_CORPORA is {chosen}, which is not a folder", chosen=chosen)
    return Path(chosen)


def _own_file(name: str) -> Path | None:
    """The file of a named text in the folder VITRAL_CORPORA, if it is there.

    Raises:
        UsageError: VITRAL_CORPORA is not a folder.
    """
    folder = own_folder() if _NAME.fullmatch(name) else None
    names = (*(SOURCES[name].files if name in SOURCES else ()), f"{name}.txt")
    return next((folder / file for file in names if (folder / file).is_file()), None) if folder else None


def _from_file(name: str, path: Path, config: CorpusConfig, *, noted: bool = False) -> Corpus:
    """One file as a corpus; `noted` records the path, for a source given by name."""
    if config.glob is not None:
        raise UsageError("{name}: is one text, and --glob chooses among the files of a folder; leave it out", name=name)
    with opened(path) as file:
        (corpus,) = without_equal([read_file(file, path, config)])
    notes = [N_("Read from {path}.").format(path=printable(str(path)))] if noted else []
    all_notes = (*notes, *reading_notes([corpus], config))
    return replace(corpus, name=printable(name), notes=all_notes, path=os.path.abspath(path))


def without_equal(texts: Sequence[Corpus]) -> list[Corpus]:
    """The texts without records that equal an earlier one: one of two would teach the answer of the other."""
    known, distinct = set[str](), list[Corpus]()
    for one in texts:
        records = one.each_record
        new = [record for record in dict.fromkeys(records) if record not in known]
        known.update(new)
        if equal := len(records) - len(new):
            one = replace(
                one,
                text="".join(new),
                notes=(*one.notes, NOTES["equal"].format(records=len(records), equal=equal)),
                records=in_a_row(map(len, new)),
                changes=one.changes + Counter(equal=equal),
            )
        distinct.append(one)
    return distinct


def _generated(task: Task) -> Corpus:
    """The sequences of a task, drawn again."""
    drawn = texts = task_texts(task)
    note = N_("{sequences:,} sequences of {span:,} symbols, drawn by seed {seed}.")
    if isinstance(task, Questions):
        texts = list(dict.fromkeys(drawn))
        note = N_(
            "{sequences:,} different questions with their answers, drawn by seed {seed}; the training split has each "
            "as often as it was drawn."
        )
    note = note.format(sequences=task.sequences, span=task.span, seed=task.seed)
    text, records = "".join(texts), in_a_row(map(len, texts))
    if records is not None and len(drawn) > len(texts):
        indices = {one: index for index, one in enumerate(texts)}
        records = records.chosen(np.sort([indices[one] for one in drawn]))
    return Corpus(f"{TASK}:{task.name}", text, len(text), sha256(text.encode("ascii")), (note,), records=records)


def _from_folder(path: Path, config: CorpusConfig) -> Corpus:
    """The files of a folder that are text and match `config.glob`, or the text of another program's tokens.

    Raises:
        UsageError: the folder or a file cannot be read, none is text, the folder is Vitral's own, such as a run; or its
            tokens do not belong to the tokenizer.
    """
    name = path.resolve().name or str(path)
    if are_shards(path):
        shards = Shards(path)
        corpus = Corpus(name, shards.text, shards.num_bytes, shards.sha256, shards=shards)
    else:
        corpus = _of_files(name, path, config)
    return replace(corpus, path=os.path.abspath(path))


def _joined(name: str, texts: Sequence[Corpus], config: CorpusConfig) -> Corpus:
    """Several texts as one corpus."""
    listing = "".join(f"{corpus.sha256}  {corpus.name}\n" for corpus in texts)
    separator = _separator(config)
    begins = accumulate((len(corpus.text) + len(separator) for corpus in texts[:-1]), initial=0)
    return Corpus(
        name=name,
        text=joined_text([corpus.text for corpus in texts], separator),
        num_bytes=sum(corpus.num_bytes for corpus in texts),
        sha256=sha256(listing.encode("utf-8", "surrogateescape")),
        notes=tuple(note for corpus in texts for note in corpus.notes),
        files=tuple(
            Work(printable(corpus.name), begin, begin + len(corpus.text))
            for corpus, begin in zip(texts, begins, strict=True)
        ),
        records=in_a_row([end - begin for corpus in texts for begin, end in corpus.records or ()]),
    )


def _separator(config: CorpusConfig) -> str:
    return config.separator if config.records is None else ""


def _of_files(name: str, root: Path, config: CorpusConfig, without: Collection[str] = ()) -> Corpus:
    files = user_files(root, config.glob, without)
    if config.glob is not None and not files:
        raise UsageError(
            "{root}: no file matches --glob {patterns}; hidden files are never read",
            root=root,
            patterns=_(" or ").join(map(repr, config.glob)),
        )
    encoding = config.encoding or "UTF-8"
    texts = {path.relative_to(root).as_posix(): _text_in(path, config) for path in files}
    read = without_equal([replace(one, name=name) for name, one in texts.items() if isinstance(one, Corpus)])
    skipped = {name: why for name, why in texts.items() if isinstance(why, str)}
    if not read:
        why = next((f"; {why}" for why in skipped.values() if why), "")
        raise UsageError(
            "{root}: no {encoding} text in this folder ({skipped} files skipped){why}",
            root=root,
            encoding=encoding,
            skipped=len(skipped),
            why=why,
        )
    joined = N_("{files:,} files were joined with {separator!r} between them.")
    notes: list[str] = [joined.format(files=len(read), separator=_separator(config))]
    if skipped:
        notes.append(
            N_("{files:,} files were skipped, empty or not {encoding} text: {names}.").format(
                files=len(skipped), encoding=encoding, names=_some(skipped)
            )
        )
    notes += reading_notes(read, config)
    return replace(_joined(printable(name), read, config), notes=tuple(notes))


def _some(names: Iterable[str]) -> str:
    return some_of([*map(printable, names)], _NAMED_AT_MOST)


def _text_in(path: Path, config: CorpusConfig) -> Corpus | str:
    """A file of a folder; if it is not text, the reason or nothing.

    Raises:
        UsageError: the file cannot be read, has the suffix of a text file but is none, or has no such field.
    """
    if not path.is_file():
        return ""
    with opened(path) as file:
        try:
            corpus = read_file(file, path, config)
        except UsageError as error:
            if path.suffix.lower() in _SURELY_TEXT or config.field is not None or config.records is not None:
                raise
            return str(error)
    return corpus if len(corpus.text) else ""


def user_files(root: Path, glob: Sequence[str] | None, without: Collection[str]) -> list[Path]:
    """The files under a folder by path, without hidden ones and what Vitral wrote.

    Links to folders are not followed.

    Args:
        root: the folder.
        glob: patterns, see `CorpusConfig`.
        without: names of folders that are left out.

    Raises:
        UsageError: a folder cannot be read, or this one is Vitral's own; says what the user may have meant.
    """
    files = list[Path]()
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        if why := _written_here([*subfolders, *names]):
            if Path(folder) == root:
                raise UsageError(why, path=root)
            subfolders.clear()
            continue
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and name not in without]
        for file in (Path(folder, name) for name in names if not name.startswith(".")):
            parts = file.relative_to(root).parts
            if glob is None or any(
                _fits(parts if "/" in pattern else parts[-1:], pattern.split("/")) for pattern in glob
            ):
                files.append(file)
    return sorted(files, key=lambda file: file.parts)


def _refuse(error: OSError) -> None:
    raise UsageError("{path}: cannot be read ({reason})", path=error.filename, reason=reason(error)) from None


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a pattern, see `CorpusConfig`.

    >>> _fits(("src", "a.py"), ("src", "*")), _fits(("src", "in", "a.py"), ("src", "*"))
    (True, False)
    >>> _fits(("src", "in", "a.py"), ("src", "**", "*.py")), _fits(("a.py",), ("**", "a.py"))
    (True, True)
    """
    if not wanted:
        return not parts
    first, *others = wanted
    if first == "**":
        return any(_fits(parts[skipped:], others) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], first) and _fits(parts[1:], others)


def _written_here(names: Collection[str]) -> str:
    """The refusal of a folder that Vitral wrote, by the names in it: of a run, a study or a report; else empty."""
    if are_of_a_run(names):
        return N_(
            "{path}: is a run, not a text; vitral evaluate {path} measures it; vitral train TEXT --init-from {path} "
            "trains it further on a text"
        )
    if "study.json" in names and ("arms" in names or "measures" in names):
        return N_("{path}: is a study, not a text; its pages are in {path}/report; vitral doctor {path} examines it")
    if "MANIFEST.json" in names and any(name.endswith(".html") for name in names):
        return N_("{path}: is a report, not a text; open its page in a browser")
    return ""
