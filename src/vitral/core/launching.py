"""What the launcher of several ranks says to each of them, by torchrun's variables of the environment."""

import os


def launched() -> bool:
    """Whether this process was launched as one of several ranks."""
    size = os.environ.get("WORLD_SIZE", "1")
    return size.isdecimal() and int(size) > 1 and {"RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def local_rank() -> int:
    """The number of this rank among those of its machine; 0 if the launcher does not say."""
    return int(os.environ.get("LOCAL_RANK", "0"))
