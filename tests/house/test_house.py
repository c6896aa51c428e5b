"""Rules of the package itself: lengths, imports, requirements, no pickle, the sources of the bundled texts."""

import ast
import graphlib
import hashlib
import re
import tomllib
from functools import cache
from importlib import import_module, resources
from pathlib import Path

import pytest
from sentences import SOURCE, trees

from vitral.data.corpora import BUNDLED

TEXTS = resources.files("vitral.data") / "texts"


def test_no_function_is_long() -> None:
    long = [
        f"{path}: {node.name}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        # Docstrings are counted, but not those of the facade, which are the help of commands, as signatures are.
        and (node.end_lineno or 0) - node.body[path.parent.name == "facade" and len(node.body) > 1].lineno >= 70
    ]
    assert long == []


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    return {
        ".".join(("vitral", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): (path, tree)
        for path, tree in trees()
    }


def imported(module: str, tree: ast.Module) -> set[str]:
    """Modules of the package that a file imports, also inside functions and under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules() else node.module)
    return (found & modules().keys()) - {module}


def test_following_the_imports_of_a_file_never_leads_back_to_it() -> None:
    arrows = {module: imported(module, tree) for module, (_, tree) in modules().items()}
    assert len(arrows["vitral.app.terminal"]) > 1
    graphlib.TopologicalSorter(arrows).prepare()  # which names a circle


def knows_distributed(tree: ast.Module) -> bool:
    """Whether a module imports torch.distributed, or takes it from torch."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found = [f"{module}.{alias.name}" for alias in names]
            case ast.Attribute(ast.Name(name), attribute):
                found = [f"{name}.{attribute}"]
            case _:
                continue
        if any(f"{name}.".startswith("torch.distributed.") for name in found):
            return True
    return False


def test_few_modules_know_torch_distributed() -> None:
    rooms = {f"vitral.training.{name}" for name in ("ranks", "sharding")}
    assert {module for module, (_, tree) in modules().items() if knows_distributed(tree)} == rooms


def test_no_public_name_of_a_package_hides_a_module() -> None:
    hidden = {
        name
        for package, (path, tree) in modules().items()
        for node in ast.walk(tree)
        if path.name == "__init__.py" and isinstance(node, ast.ImportFrom) and node.module != package
        for alias in node.names
        if (name := f"{package}.{alias.name}") in modules()
    }
    # `vitral` keeps these two: tests/app/test_face.py calls them after the rooms are imported.
    assert hidden == {"vitral.compare", "vitral.doctor"}


def test_nothing_reads_pickle_or_runs_what_it_reads() -> None:
    forbidden = re.compile(
        r"\bpickle\b|(?<!safetensors\.)torch\.(load|save)\(|(?<![.\w])(eval|exec)\(|yaml\.load|allow_pickle=True"
    )
    tensors_only = 'torch.load(path, map_location="cpu", weights_only=True, mmap=True)'
    for source, _ in trees():
        text = source.read_text(encoding="utf-8")
        allowed = tensors_only if source.name == "nanogpt.py" else ""
        assert not forbidden.search(text.replace(allowed, "")), source


def test_the_requirements_have_lower_bounds_only() -> None:
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "torch>=2.6" in project["dependencies"]
    assert not [each for each in project["dependencies"] if set("<=~!") & set(each.replace(">=", ""))]


def test_the_sources_of_the_bundled_texts_are_named() -> None:
    sources = (TEXTS / "README.md").read_text(encoding="utf-8")
    assert {file.name for file in TEXTS.iterdir()} - {"README.md"} == set(BUNDLED.values())
    for name, file in BUNDLED.items():
        row = next(line for line in sources.splitlines() if f"`{name}`" in line)
        assert file in row
        assert hashlib.sha256((TEXTS / file).read_bytes()).hexdigest() in row


@pytest.mark.merge
def test_the_gallerys_pages_are_current() -> None:
    """`make gallery` writes them; whoever changes an example or a phrase runs it."""
    gallery = import_module("docs.make_gallery")
    pages = gallery.pages()
    assert {path.name for path in gallery.FOLDER.glob("*.md")} == set(pages)
    assert all((gallery.FOLDER / name).read_text("utf-8") == page for name, page in pages.items())


def test_the_pages_of_the_sources_and_the_readmes_are_current() -> None:
    """`make sources` writes them; whoever publishes a study or changes docs/readme.txt runs it."""
    made = import_module("docs.make_sources")
    assert all((made.FOLDER / name).read_text("utf-8") == page for name, page in made.pages().items())
    made = import_module("docs.make_readme")
    assert all(path.read_text("utf-8") == made.readme(language) for language, path in made.READMES.items())
