"""Serving on this machine: a socket on 127.0.0.1, the address with its token, the browser, the server."""

import contextlib
import os
import secrets
import socket
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.errors import TRACEBACK, StorageError, UsageError, reason

if TYPE_CHECKING:
    from vitral.runs.loading import LoadedRun

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
NEEDED = ("starlette", "uvicorn")


def serve(
    paths: Sequence[Path],
    *,
    checkpoint: str = "best",
    corpus: str | None = None,
    tour: Any = None,
    port: int = 0,
    browser: bool = True,
    token: str | None = None,
    announce: Callable[[str], object] = print,
) -> None:
    """Serve the page of runs until it is interrupted.

    Args:
        paths: the runs' folders.
        checkpoint: "best" or "last".
        corpus: where the text of a run is, if it is no longer where it was.
        tour: the stops of the page's tour (`vitral.page.tour`); Vitral's own if None.
        port: 0 takes a free one.
        browser: whether to open the address in the browser.
        token: the secret; drawn if None.
        announce: called with the address when it can be opened.

    Raises:
        UsageError: a folder is not a run, its model continues no text, the extra `serve` is not installed, or the port
            is taken.
    """
    require_server()
    for path in paths:
        if not (path / "config.toml").is_file():
            from vitral.runs import RunFolder

            RunFolder.open(path)  # says what it is instead
        try:
            shape = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))["model"]["shape"]
        except (OSError, ValueError, KeyError, TypeError):
            shape = None  # the page says what is wrong
        if shape == "encoder":
            raise UsageError(
                "{name}: vitral open shows models that continue a text, and this one does not; vitral bundle writes "
                "the page of a model that fills gaps or names labels",
                name=path,
            )
    token = token or secrets.token_urlsafe(24)
    with _listening(port) as listening:
        port = int(listening.getsockname()[1])
        address = f"http://{HOST}:{port}/#token={token}"
        announce(address)
        with _opened(address) if browser else contextlib.nullcontext():
            from vitral.page.server.app import Server

            server = Server(paths, checkpoint, corpus, tour)
            server.worker.submit(server.warm)  # while the browser starts
            _run(listening, server.application(token, _hosts(port)))


def serve_completions(
    models: "Mapping[str, LoadedRun]",
    *,
    port: int = 0,
    token: str | None = None,
    announce: Callable[[str, str], object] = print,
) -> None:
    """Serve runs in OpenAI's form (`vitral.page.server.completions`) until it is interrupted.

    Args:
        models: loaded runs by name.
        port: 0 takes a free one.
        token: the secret; drawn if None.
        announce: called with the address and the secret when requests are answered.

    Raises:
        UsageError: a run that continues no text, or the port is taken.
    """
    from vitral.page.server.completions import Completions

    served, token = Completions(models), token or secrets.token_urlsafe(24)
    with _listening(port) as listening:
        port = int(listening.getsockname()[1])
        announce(f"http://{HOST}:{port}/v1", token)
        _run(listening, served.application(token, _hosts(port)))


def require_server() -> None:
    """Refuse to serve without the packages that do it.

    Raises:
        UsageError: the extra `serve` is not installed.
    """
    missing = next((package for package in NEEDED if find_spec(package) is None), None)
    if missing is not None:
        raise UsageError("the page is served by {package}: pip install 'vitral[serve]'", package=missing)


def _hosts(port: int) -> list[str]:
    return [f"{name}:{port}" for name in NAMES]


def _listening(port: int) -> socket.socket:
    """A socket that accepts connections from this machine; they wait until the server is there."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen(128)
    except (OSError, OverflowError) as error:
        made.close()
        raise UsageError("port {port} cannot be used ({reason})", port=str(port), reason=reason(error)) from None
    return made


def _run(listening: socket.socket, application: Any) -> None:
    from uvicorn.config import Config
    from uvicorn.server import Server as Uvicorn

    config = Config(
        application,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_level=None if os.environ.get(TRACEBACK) == "1" else "critical",  # an answer that is cut is no fault
        timeout_graceful_shutdown=0,
    )
    Uvicorn(config).run(sockets=[listening])


@contextlib.contextmanager
def _opened(address: str):
    """Open the address in the browser, by a file that only its owner can read: a process's arguments are public."""
    if not (sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        yield
        return
    try:
        handle, name = tempfile.mkstemp(prefix="vitral-", suffix=".html")
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n')
    except OSError as error:
        raise StorageError("a temporary file cannot be written ({reason})", reason=reason(error)) from None
    threading.Thread(target=_open, args=(Path(name).as_uri(),), daemon=True).start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _open(uri: str) -> None:
    import webbrowser

    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(uri)
