"""The registry of parts that users write, and how configurations name them."""

import functools
import hashlib
from pathlib import Path

import pytest
from torch import nn

from vitral.core import parts
from vitral.core.errors import UsageError
from vitral.core.parts import (
    OwnPart,
    changed_parts,
    import_parts,
    own_parts,
    register,
    with_sources,
    without_sources,
)
from vitral.model import ModelConfig

FILE = """
import vitral
from torch import nn

@vitral.register("norm", "filed")
class Filed(nn.Identity):
    def __init__(self, d_model):
        super().__init__()
"""


def identity(d_model: int, epsilon: float = 0.5) -> nn.Module:
    return nn.Identity()


def of_name(name: str, **settings: object) -> ModelConfig:
    return ModelConfig.parse({"norm_type": {"name": name, **settings} if settings else name})


def test_a_decorator_and_a_call_register_and_return_the_factory() -> None:
    assert register("norm", "one", identity) is identity
    assert register("norm", "two")(identity) is identity
    sha256 = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert [part[3:] for part in parts._parts.values()] == [(Path(__file__).name, sha256)] * 2


def test_a_configuration_names_a_part_with_settings_and_is_itself_as_plain_data() -> None:
    register("norm", "mine", identity)
    config = of_name("mine", epsilon=0.25, sizes=[1, 2])
    (own,) = own_parts(config)
    assert (own.name, own.settings) == ("mine", {"epsilon": 0.25, "sizes": [1, 2]})
    plain = config.plain()["norm_type"]
    assert plain == {"name": "mine", "epsilon": 0.25, "sizes": [1, 2], "file": own.file, "sha256": own.sha256}
    assert ModelConfig.parse(config.plain()) == config
    assert hash(ModelConfig.parse(config.plain())) == hash(config)


@pytest.mark.parametrize("key", OwnPart.__subclasses__())
def test_a_name_of_vitral_is_refused(key: type[OwnPart]) -> None:
    for name in key.built_in:
        with pytest.raises(UsageError, match=name):
            register(key.kinds[0], name, identity)


def test_the_last_part_of_a_name_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    import_parts(file)
    import_parts(file)
    assert parts._parts["norm", "filed"].sha256 == hashlib.sha256(FILE.encode()).hexdigest()
    register("norm", "filed", identity)
    assert parts._parts["norm", "filed"].factory is identity


def test_a_part_without_a_file_is_registered_with_a_warning_and_again_without_a_refusal() -> None:
    for factory in (len, max):
        with pytest.warns(UserWarning, match="no file"):
            register("activation", "of-a-cell", factory)
    assert parts._parts["activation", "of-a-cell"].factory is max
    register("norm", "partial", functools.partial(identity, epsilon=2.0))
    assert parts._parts["norm", "partial"].file == Path(__file__).name


def test_an_unknown_name_is_refused_with_the_known_ones_and_the_remedy() -> None:
    register("norm", "mine", identity)
    with pytest.raises(UsageError, match=r"norm_type.*layernorm, rmsnorm, mine.*--parts"):
        of_name("zzz")
    with pytest.raises(UsageError, match="did you mean 'mine'"):
        of_name("mien")
    with pytest.raises(UsageError, match=r"norm_type = 'mine'"):
        ModelConfig.parse({"norm": "mine"})


@pytest.mark.parametrize("settings", [{"a": None}, {"a": float("inf")}, {"a": [float("nan")]}, {"a": object()}])
def test_settings_are_plain_data(settings: dict[str, object]) -> None:
    register("norm", "mine", identity)
    with pytest.raises(UsageError, match="norm_type"):
        of_name("mine", **settings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "FileNotFoundError"),
        ("x = (", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import no_such_module_at_all", "no_such_module_at_all"),
        ("x = 1", "registers no part"),
        ("\0", "Error"),
    ],
)
def test_a_file_that_is_no_file_of_parts_is_one_line(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "bad.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        import_parts(file)
    assert str(file) in str(refused.value)
    assert parts._parts == {}
    assert parts.imported_files() == {}


def test_a_recorded_part_is_read_without_being_registered_and_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    register("norm", "mine", identity)
    plain = of_name("mine", epsilon=0.5).plain()
    monkeypatch.setattr(parts, "_parts", {})
    config = ModelConfig.parse(plain)
    assert config.plain() == plain
    with pytest.raises(UsageError, match=rf"run: .*'mine' of {Path(__file__).name}.*--parts {Path(__file__).name}"):
        changed_parts(config, "run")


def test_a_changed_source_is_found_and_another_can_be_recorded() -> None:
    register("norm", "mine", identity)
    config = of_name("mine")
    (own,) = own_parts(config)
    assert changed_parts(config, "run") == {}
    former = with_sources(config, {"norm/mine": "0" * 64})
    assert changed_parts(former, "run") == {"norm/mine": own.sha256}
    assert with_sources(former, {"norm/mine": own.sha256}) == config
    assert ModelConfig.parse(without_sources(former.plain())) == config
