"""Damage to the files of a study outside its runs: each is told, and the next call has the right numbers again."""

import random
import shutil
from pathlib import Path

import pytest

from tests.reliability.conftest import Tally, scaled
from tests.reliability.test_study_links import FILES, STUDY, numbers, work
from vitral.core.errors import VitralError
from vitral.core.guarded import GuardedFolder
from vitral.reports.folder import check_report
from vitral.reports.study import write_report
from vitral.studies import run_study
from vitral.studies.measures import check_measures
from vitral.studies.record import read_record
from vitral.training import RunConfig

DAMAGES = scaled(80, 8000)
COMMANDS = scaled(2, 60)


@pytest.fixture(scope="module")
def whole(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study as it should be."""
    out = tmp_path_factory.mktemp("study") / "out"
    work(config, out)
    return out


def complaints(out: Path) -> list[str]:
    """What the doors of a study say about its files."""
    folder, told = GuardedFolder(out), list[str]()
    try:
        read_record(folder, told.append)
    except VitralError as error:
        told.append(str(error))
    _, unsealed, of_measures = check_measures(folder)
    return [*told, *["no hash"] * unsealed, *of_measures, *check_report(folder.within("report"))]


def damaged(raw: bytes, draw: random.Random) -> bytes:
    """Other bytes: a bit flipped, a byte changed, inserted or removed, the end cut off, twice, nothing."""
    place, byte = draw.randrange(len(raw)), bytes([draw.randrange(256)])
    choices = [
        raw[:place] + bytes([raw[place] ^ 1 << draw.randrange(8)]) + raw[place + 1 :],
        raw[:place] + byte + raw[place + 1 :],
        raw[:place] + byte + raw[place:],
        raw[:place] + raw[place + 1 :],
        raw[:place],
        raw + raw,
        b"",
    ]
    return draw.choice([choice for choice in choices if choice != raw])


def test_every_damage_is_told(whole: Path, tmp_path: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, out = random.Random(seed), Path(shutil.copytree(whole, tmp_path / "out"))
    assert complaints(out) == []
    for number in range(DAMAGES):
        path = out / draw.choice(FILES)
        raw = path.read_bytes()
        path.write_bytes(damaged(raw, draw))
        told = complaints(out)
        assert told, (seed, number, path)
        assert not any("\n" in line or len(line) > 1000 for line in told), (seed, number, told)
        path.write_bytes(raw)
    tally("damages to a study's files outside its runs, each told", DAMAGES)


def test_after_a_damage_the_numbers_are_right_or_the_study_is_refused(
    config: RunConfig, whole: Path, tmp_path: Path, tally: Tally
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, straight = random.Random(seed), numbers(whole)
    for number in range(COMMANDS):
        out = Path(shutil.copytree(whole, tmp_path / "out"))
        path = out / draw.choice([*FILES[:2], FILES[1], draw.choice(FILES)])
        path.write_bytes(damaged(path.read_bytes(), draw))
        notes: list[str] = []
        try:
            done = run_study(
                STUDY,
                config,
                out,
                budget="quick",
                callback=lambda event, notes=notes: notes.append(event["text"]) if event["event"] == "note" else None,
            )
        except VitralError as error:
            assert path.name == "study.json", (seed, number, error)
            assert "\n" not in str(error)
        else:
            assert bool(notes) == ("measures" in str(path)), (seed, number, path, notes)
            write_report(done)
            assert numbers(out) == straight, (seed, number, path)
            assert complaints(out) == []
        shutil.rmtree(out)
    tally("studies called again after a damage", COMMANDS)
