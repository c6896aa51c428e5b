"""Every test of this room has a cache of its own, no folder of corpora, and no network but its own server."""

import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitral.core.errors import UsageError
from vitral.data import Blocks, CorpusConfig, Split, Tokenizer, load_corpus
from vitral.data.tokens import encoded


def refusal(source: Path | str, **options: object) -> str:
    """The one line with which a text is refused."""
    with pytest.raises(UsageError) as error:
        load_corpus(CorpusConfig.parse({"source": str(source), **options}))
    return str(error.value)


def encoded_splits(
    text: Any, blocks: Mapping[str, Blocks], tokenizer: Tokenizer, replacement: str | None = None
) -> dict[str, Split]:
    """The tokens of each split, in memory."""
    tokens: dict[str, list[np.ndarray]] = {split: [] for split in blocks}
    lengths: dict[str, list[int]] = {split: [] for split in blocks}
    for split, is_first, ids in encoded(text, blocks, tokenizer, (), replacement):
        tokens[split].append(ids)
        lengths[split] += [0] if is_first else []
        lengths[split][-1] += ids.size
    ends = {split: np.cumsum([0, *lengths[split]]) for split in blocks}
    return {
        split: Split(np.concatenate(tokens[split]), np.stack([end[:-1], end[1:]], axis=1))
        for split, end in ends.items()
    }


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that is this test's own."""
    folder = tmp_path / "the-cache"
    monkeypatch.setenv("VITRAL_CACHE", str(folder))
    monkeypatch.delenv("VITRAL_CORPORA", raising=False)
    return folder


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a local server; `serve(status, body, promised=None)` gives its URL and the list of paths asked for."""
    monkeypatch.setenv("NO_PROXY", "*")
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes, promised: int | None = None) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if promised is None else promised))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/text.txt", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
