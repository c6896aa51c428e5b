"""Own parts of a run that is trained: their sources are those that its configuration names."""

from vitral.core.errors import UsageError
from vitral.core.parts import changed_parts
from vitral.runs import RunConfig


def require_same_parts(config: RunConfig, where: str) -> None:
    """Refuse a configuration whose own parts are not those that are registered.

    Raises:
        UsageError: a part is not registered, or its source is another than the configuration's.
    """
    for key in changed_parts(config, where):
        raise UsageError(
            "{where}: the source of {key} is another than the recorded one; register that one, or for a new run leave "
            "its file and sha256 out of the configuration",
            where=where,
            key=key,
        )


def accepted_changes(config: RunConfig, where: str, *, accept: bool) -> dict[str, str]:
    """The own parts of a stopped run whose source is another now: the new hash by kind and name.

    Raises:
        UsageError: a part is not registered, or changed and that is not accepted.
    """
    changed = changed_parts(config, where)
    if changed and not accept:
        raise UsageError(
            "{where}: the source of {key} has changed since the run was trained, so that its next steps may be others; "
            "register the former source, or give --changed-parts to go on with this one, which is recorded",
            where=where,
            key=min(changed),
        )
    return changed
