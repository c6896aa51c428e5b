"""A text's tokens in shards, from Python: `shard`, as `vitral corpus --shards`; and the health of such shards."""

from pathlib import Path
from typing import Any

from vitral.core.checked import Count, checked
from vitral.core.errors import UsageError
from vitral.core.language import N_, in_language
from vitral.data import CorpusConfig, Shards
from vitral.data.making_shards import Tick, make_shards
from vitral.lab.health import Diagnosis, HealthCheck
from vitral.lab.new_runs import text


def _silent(done: int, number: int) -> None:
    pass


@checked(first=True)
def shard(source: str | Path, out: str | Path, *, workers: Count = 1, tick: Tick = _silent, **corpus: Any) -> Shards:
    """Tokenize a file or a folder into shards, for texts that are too large for one disk or one process.

    Shards that are there already are kept: a second call goes on where the first was ended. The bytes are the same
    with any number of workers. `train(out)` trains on them.

    Args:
        source: a file, or a folder of files, in UTF-8.
        out: folder to create.
        workers: processes.
        tick: called with the number of finished shards and of all.
        corpus: other keys of the `[corpus]` table: `tokenizer`, `specials`, `glob`, `newlines`, `separator`.

    Raises:
        UsageError: the text cannot be used, or `out` holds something else.
        StorageError: a shard cannot be written.
    """
    config = CorpusConfig.parse({**corpus, "source": text(source)}, "corpus")
    return make_shards(config, Path(out), workers=workers, tick=tick)


def examine_shards(folder: Path) -> Diagnosis:
    """Compare every shard with its hash."""
    with in_language("en"):
        try:
            found = Shards(folder)
            found.verify()
        except UsageError as error:
            return Diagnosis((HealthCheck("wrong", SHARDS, str(error)),))
    whole = N_("{number:,} shards of {tokens:,} tokens agree with their SHA-256").format(
        number=len(found.shards), tokens=found.num_tokens
    )
    return Diagnosis((HealthCheck("ok", SHARDS, whole),))


SHARDS = N_("shards")
