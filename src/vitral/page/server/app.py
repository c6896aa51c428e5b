"""The application: the page, what it says of the runs, and their numbers.

    GET  /        the page
    GET  /runs    [{"id", "name"}]
    GET  /words   the page's sentences in other languages
    POST /about   {"run", "whole"}                         what the page says of a run, as JSON
    POST /relation {"run", "against"}                      how a run differs from another, as JSON
    POST /encode  {"run", "text"}                          its tokens, where only the server has the tokenizer
    POST /trace   {"run", "ids" or "text", "names", ...}   named values as safetensors
    POST /anatomy {"run"}                                  the model's graph without its numbers, as JSON
    POST /numbers {"run", "cells"}                         numbers of the graph's constants as safetensors
    POST /next    {"run", "ids", "numbers", ...}           drawn tokens, one frame each, as they are made

A refusal is {"error": one line} with a status from 400 to 499. PyTorch and the runs' modules are imported in a thread
of their own, which begins when the server does.
"""

import asyncio
import json
import os
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from vitral.core.errors import TRACEBACK, VitralError
from vitral.core.language import _
from vitral.page.document import as_text, served_document, served_policy, words
from vitral.page.server.security import Guard

if TYPE_CHECKING:
    from vitral.page.server.runs import Runs

MOST_BODY = 1 << 20
"""Bytes of a request."""
JSON, BYTES = "application/json", "application/octet-stream"
ANSWERS = {"about": JSON, "relation": JSON, "encode": JSON, "anatomy": JSON, "numbers": BYTES}
"""Requests that a method of `Runs` answers as a whole, and the media type of its answer."""
LEFT = 499
"""Status of an answer to nobody."""
LONGEST = 200
"""Characters of a foreign error that are told."""


class Server:
    """The answers to a page's requests.

    Attributes:
        paths: the runs' folders; a request names them by their place.
    """

    def __init__(
        self, paths: Sequence[Path], checkpoint: str = "best", corpus: str | None = None, tour: Any = None
    ) -> None:
        """Serve these runs; `corpus` is where the text of one is, if it is no longer where it was."""
        self.paths, self.checkpoint, self.corpus = list(paths), checkpoint, corpus
        self.page = served_document(tour)
        self.worker = ThreadPoolExecutor(1, "vitral")
        self.slow = ThreadPoolExecutor(1, "vitral-slow")
        self.turn = asyncio.Lock()
        self._runs: Runs | None = None

    def application(self, token: str, hosts: Sequence[str]) -> Starlette:
        """The application, behind its guard."""
        routes = [
            Route("/", self.document, methods=["GET"]),
            Route("/runs", self.listed, methods=["GET"]),
            Route("/words", self.words, methods=["GET"]),
            *(Route(f"/{name}", partial(self.answer, name), methods=["POST"]) for name in ANSWERS),
            Route("/trace", self.trace, methods=["POST"]),
            Route("/next", self.next, methods=["POST"]),
        ]
        guard = Middleware(Guard, token=token, hosts=hosts, policy=served_policy())  # pyright: ignore
        handlers: dict[Any, Any] = {VitralError: _refused, HTTPException: _not_there, ClientDisconnect: left}
        return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)

    async def document(self, request: Request) -> Response:
        """The page."""
        return HTMLResponse(self.page)

    async def listed(self, request: Request) -> Response:
        """The runs by their ids; none is opened."""
        from vitral.compare import short_names  # NumPy comes after the first picture

        return JSONResponse([{"id": place, "name": name} for place, name in enumerate(short_names(self.paths))])

    async def words(self, request: Request) -> Response:
        """The words of other languages."""
        return Response(await self._run(lambda: as_text(words())), media_type=JSON)

    async def answer(self, name: str, request: Request) -> Response:
        """The answer of a method of `Runs`."""
        given = await json_of(request)
        is_slow = name in ("anatomy", "relation") or (name == "about" and given.get("whole") is True)
        found = await self._called(name, given, self.slow if is_slow else self.worker)
        return Response(found, media_type=ANSWERS[name])

    async def trace(self, request: Request) -> Response:
        """Named values of a sentence."""
        given = await json_of(request)
        async with self.turn:
            if await request.is_disconnected():  # a later keystroke has overtaken it
                return Response(status_code=LEFT)
            values, headers = await self._called("trace", given)
        return Response(values, media_type=BYTES, headers=headers)

    async def next(self, request: Request) -> Response:
        """Tokens, one frame each."""
        given = await json_of(request)
        frames = await self._called("drawn", given)
        first = await self._run(partial(next, frames, None))  # what is refused is refused before the answer begins

        async def streamed() -> AsyncIterator[bytes]:
            frame = first
            while frame is not None:
                yield frame
                if await request.is_disconnected():
                    return
                frame = await self._run(partial(next, frames, None))

        return StreamingResponse(streamed(), media_type=BYTES)

    async def _called(self, method: str, given: Any, worker: ThreadPoolExecutor | None = None) -> Any:
        return await self._run(lambda: getattr(self._opened(), method)(given), worker)

    async def _run(self, call: Callable[[], Any], worker: ThreadPoolExecutor | None = None) -> Any:
        return await called_by(worker or self.worker, call)

    def _opened(self) -> "Runs":
        if self._runs is None:
            from vitral.page.server.runs import Runs

            self._runs = Runs(self.paths, self.checkpoint, self.corpus)
        return self._runs

    def warm(self) -> None:
        """Import PyTorch, and load the first run; what is wrong with it is said when the page asks."""
        self._opened().warm()


async def called_by(worker: ThreadPoolExecutor, call: Callable[[], Any]) -> Any:
    """What a call returns that a worker makes.

    Raises:
        VitralError: of the call.
        HTTPException: any other error of it.
    """
    try:
        return await asyncio.get_running_loop().run_in_executor(worker, call)
    except VitralError:
        raise
    except Exception as error:
        if os.environ.get(TRACEBACK) == "1":
            traceback.print_exception(error)
        told = f"{type(error).__name__}: {str(error)[:LONGEST]}"
        raise HTTPException(500, _("a fault of Vitral ({error})", error=told)) from None


async def json_of(request: Request) -> Any:
    """The body as JSON, at most `MOST_BODY` bytes."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY:
            raise HTTPException(413, _("a request has at most {most:,} bytes", most=MOST_BODY))
    try:
        given = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise HTTPException(
            400, _("the request is not JSON ({error})", error=ascii(str(error))[1:-1][:LONGEST])
        ) from None
    if not isinstance(given, dict):
        raise HTTPException(400, _("the request is not a JSON object"))
    return given


async def _refused(request: Request, error: VitralError) -> Response:
    return JSONResponse({"error": str(error)}, status_code=getattr(error, "status", 422))


async def _not_there(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, status_code=error.status_code)


async def left(request: Request, error: ClientDisconnect) -> Response:
    """The answer to nobody."""
    return Response(status_code=LEFT)
