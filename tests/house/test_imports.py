"""No circle of files: following the imports of any file never leads back to it. Few know torch.distributed."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import vitral

PACKAGE = Path(vitral.__file__).parent
FILES = {
    ".".join(("vitral", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imported(module: str, path: Path) -> set[str]:
    """Modules of the package that a file imports, also inside functions and under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            for _ in range(node.level - 1):
                package = package.rpartition(".")[0]
            source = ".".join(filter(None, (package if node.level else "", node.module)))
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found.add(inner if inner in FILES else source)
    return (found & FILES.keys()) - {module}


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in sorted(arrows[node]):
            if other not in order:
                visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == order[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(arrows):
        if node not in order:
            visit(node)
    return found


def test_circles_are_found() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a", "f"}, "f": {"e"}}
    assert circles(arrows) == [["b", "c"], ["e", "f"]]


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles({module: imported(module, path) for module, path in FILES.items()}) == []


DISTRIBUTED = {"vitral.training.ranks", "vitral.training.sharding", "vitral.training.sharded_memory"}
"""The modules that know torch.distributed."""


def knows_distributed(source: str) -> bool:
    """Whether a module imports torch.distributed, or takes it from torch."""
    for node in ast.walk(ast.parse(source)):
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


@pytest.mark.parametrize(
    "source",
    [
        "import torch.distributed as dist",
        "from torch import distributed",
        "from torch.distributed.fsdp import fully_shard",
        "import torch\ntorch.distributed.barrier()",
    ],
)
def test_distributed_is_found(source: str) -> None:
    assert knows_distributed(source)
    assert not knows_distributed(source.replace("distributed", "distributions"))


def test_few_modules_know_torch_distributed() -> None:
    assert {name for name, path in FILES.items() if knows_distributed(path.read_text(encoding="utf-8"))} == DISTRIBUTED


@pytest.mark.parametrize("package", sorted(name for name, path in FILES.items() if path.name == "__init__.py"))
def test_no_public_name_of_a_package_hides_a_module(package: str) -> None:
    inner = {module.rpartition(".")[2] for module in FILES if module.rpartition(".")[0] == package}
    hidden = inner & set(getattr(import_module(package), "__all__", ()))
    assert not hidden
