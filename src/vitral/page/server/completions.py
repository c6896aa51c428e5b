"""Runs behind OpenAI's interface, for its clients and for lm-evaluation-harness: `vitral serve`.

    GET  /v1/models
    POST /v1/completions        a text or ids to continue; with echo and logprobs, how probable a text is
    POST /v1/chat/completions   the answer to messages, of runs of chats

A refusal is {"error": {"message": one line, …}} with a status from 400 to 499; an unknown key is refused. The secret is
the API key, a bearer token. Log-probabilities are the model's own, in nats, before temperature and other filters.
"""

import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from vitral.core.config import Config
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import N_, _
from vitral.data import Tokenizer
from vitral.data.answers import MARKERS, chat
from vitral.decoding import GenerateOptions, Sample, Sampling, generate, stream
from vitral.decoding.reader import Prompt, prompt_ids, rows_of
from vitral.decoding.text import Writer
from vitral.model import first_target
from vitral.model.modes import evaluating
from vitral.page.server.app import called_by, json_of, left
from vitral.page.server.security import Guard
from vitral.runs.loading import LoadedRun
from vitral.runs.zoo import zoo_name

MOST_LOGPROBS, MOST_TOKENS = 20, 1 << 18
NOT_FOUND, REFUSED, FAULT = 404, 400, 500
Id = Annotated[int, Field(ge=0)]
OnlyZero = Annotated[float, Field(ge=0, le=0)]
"""An OpenAI setting that Vitral does not support; only 0 is accepted."""


class Asked(Config):
    """What both kinds of requests have; the names and defaults are OpenAI's.

    Attributes:
        model: the name of a run, or its folder or `zoo:NAME` as `vitral serve` was given it; the only one if None.
        user: is not used.
    """

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=0)] = 16
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1)] = 1
    stop: str | list[str] = Field(default_factory=list[str])
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default_factory=lambda: secrets.randbelow(2**31))
    stream: bool = False
    presence_penalty: OnlyZero = 0.0
    frequency_penalty: OnlyZero = 0.0
    user: str | None = None

    @property
    def how(self) -> dict[str, Any]:
        """The arguments of `vitral.decoding.generate`."""
        heat = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
        return {"max_tokens": self.max_tokens, "sampling": Sampling.parse(heat, "completions"), "seed": self.seed}


class CompletionAsked(Asked):
    """A request of completions: a text, several, the ids of one, or those of several."""

    prompt: str | list[str] | list[Id] | list[list[Id]] = ""
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, each a text or ids."""
        given: list[Any] = self.prompt if isinstance(self.prompt, list) else [self.prompt]
        if given and isinstance(given[0], int):
            given = [given]
        return [one if isinstance(one, str) else tuple(one) for one in given]


class ChatAsked(Asked):
    """A request of the answer to messages."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = None
    max_tokens: Annotated[int, Field(ge=0)] = 200


class Read(NamedTuple):
    """A prompt as it was given, its ids (the start token of an empty one) and its text."""

    prompt: Prompt
    ids: list[int]
    text: str


class Served:
    """A run that answers; its worker computes one piece of text after another."""

    def __init__(self, name: str, loaded: LoadedRun) -> None:
        """Serve a loaded run.

        Raises:
            UsageError: it continues no text.
        """
        loaded.sealed.require_causal_lm()
        self.name, self.model, self.tokenizer = name, loaded.model, loaded.tokenizer
        self.records, path = loaded.sealed.config.corpus.records, loaded.folder.path
        self.given = zoo_name(path) or str(path)
        if self.model.encoder is not None or self.model.config.num_labels:
            raise UsageError("{name}: it answers sources, and continues no text; it is not served", name=name)
        self.worker = ThreadPoolExecutor(1, f"vitral-{name}")

    def completions(self, asked: CompletionAsked) -> dict[str, Any]:
        """The whole answer to a request of completions."""
        read, context, most = self._read(asked), self.model.config.context_length, asked.max_tokens
        longest = max(len(one.ids) for one in read)
        if asked.logprobs is not None and longest + most > context + 1:
            raise UsageError(
                "logprobs: the prompt has {prompt} tokens and the answer up to {answer}; together at most {most}, one "
                "more than the model reads",
                prompt=longest,
                answer=most,
                most=context + 1,
            )
        choices: list[dict[str, Any]] = []
        samples = self._samples(asked, read)
        for place, sample in enumerate(samples):
            prompt, ids, shown = read[place // asked.n]
            choice = {"index": place, "text": shown * asked.echo + sample.text, "finish_reason": _finish(sample)}
            if asked.logprobs is not None:
                begin = len(ids) if not asked.echo else 0 if prompt else 1
                found = self._logprobs([*ids, *sample.tokens], begin, asked.logprobs)
                found["text_offset"] = [at + len(shown) * (not asked.echo) for at in found["text_offset"]]
                end = len(shown) + len(sample.text)  # of the text; a stop string's tokens lie behind it
                inside = sum(at < end for at in found["text_offset"]) if sample.finish == "stop" else None
                choice["logprobs"] = {name: values[:inside] for name, values in found.items()}
            choices.append({"logprobs": None, **choice})
        return self._answer("text_completion", choices, read, samples)

    def chat(self, asked: ChatAsked) -> dict[str, Any]:
        """The whole answer to messages."""
        read = self._read(asked)
        samples = self._samples(asked, read)
        choices = [
            {"index": at, "message": {"role": "assistant", "content": one.text}, "finish_reason": _finish(one)}
            for at, one in enumerate(samples)
        ]
        return self._answer("chat.completion", choices, read, samples)

    def streamed(self, asked: CompletionAsked | ChatAsked) -> Generator[dict[str, Any], None, None]:
        """The pieces of an answer; what is refused is refused before the first one."""
        is_chat = isinstance(asked, ChatAsked)
        if not is_chat and (asked.echo or asked.logprobs is not None):
            raise UsageError("stream: echo and logprobs are for an answer as a whole")
        prompts = [one.prompt for one in self._read(asked)]
        kind, found = "chat.completion.chunk" if is_chat else "text_completion", self._head("chunk")
        for index in range(len(prompts) * asked.n):
            at, sample = divmod(index, asked.n)
            earlier = prompts[:at].count(prompts[at])  # `generate` numbers the samples of equal prompts on
            options = GenerateOptions(first_sample=earlier * asked.n + sample)
            how = {**asked.how, "stop": self._stops(asked), "options": options}
            pieces = stream(self.model, self.tokenizer, prompts[at], **how)
            ended, role = None, {"role": "assistant"}
            while ended is None:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    piece, ended = "", _finish(end.value)
                said = {"delta": {**role, "content": piece}} if is_chat else {"text": piece, "logprobs": None}
                role = {}
                yield {**found, "object": kind, "choices": [{"index": index, **said, "finish_reason": ended}]}

    def _read(self, asked: CompletionAsked | ChatAsked) -> list[Read]:
        """The prompts; whatever is wrong with one is refused before the first is answered."""
        is_chat = isinstance(asked, ChatAsked)
        most = self.model.config.context_length
        prompts: list[Prompt] = [self._asking(asked)] if is_chat else asked.prompts
        work = len(prompts) * asked.n * max(1, asked.max_tokens)
        if not 0 < work <= MOST_TOKENS:
            raise UsageError("prompts × n × max_tokens: expected 1 to {most}, not {work}", most=MOST_TOKENS, work=work)
        decode = self.tokenizer.decode
        made = [
            Read(one, prompt_ids(self.tokenizer, one, sys.maxsize), one if isinstance(one, str) else decode(one))
            for one in prompts
        ]
        longest = max(len(one.ids) for one in made)
        if longest > most and is_chat:
            raise UsageError("the conversation is longer than the context of {most} tokens: shorten it", most=most)
        if longest > most:
            raise UsageError(
                "prompt: {tokens} tokens, but the context length is {most}: shorten the prompt",
                tokens=longest,
                most=most,
            )
        return made

    def _samples(self, asked: Asked, read: Sequence[Read]) -> list[Sample]:
        options, prompts = GenerateOptions(num_samples=asked.n), [one.prompt for one in read]
        return generate(self.model, self.tokenizer, prompts, **asked.how, stop=self._stops(asked), options=options)

    def _stops(self, asked: Asked) -> list[str]:
        stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop
        return [*stop, *(MARKERS["chats"] if isinstance(asked, ChatAsked) else ())]

    def _asking(self, asked: ChatAsked) -> str:
        """The prompt of messages."""
        if self.records != "chats":
            raise UsageError("{name}: this run was not trained on chats; ask /v1/completions", name=self.name)
        if not asked.messages or asked.messages[-1].get("role") != "user":
            raise UsageError("messages: the last one is the user's")
        return chat(asked.messages)

    def _logprobs(self, ids: Sequence[int], begin: int, top: int) -> dict[str, Any]:
        """The log-probability of each id from `begin` on; None where nothing predicts it."""
        with evaluating(self.model):
            rows = self.model(rows_of(self.model, [ids[:-1]]))[0].double().log_softmax(-1) if len(ids) > 1 else []
        first, writer = first_target(self.model.mask), Writer()
        found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for at, token in enumerate(ids[begin:], begin):
            row = None if at - 1 < first else rows[at - 1]
            best = [] if row is None else zip(*(each.tolist() for each in row.topk(min(top, len(row)))), strict=True)
            found["tokens"].append(_text_of(self.tokenizer, token))
            found["token_logprobs"].append(None if row is None else float(row[token]))
            said = {_text_of(self.tokenizer, other): value for value, other in best}
            found["top_logprobs"].append(None if row is None else said)
            found["text_offset"].append(len(writer.text))
            writer.write(self.tokenizer.token_bytes(token))
        return found

    def _answer(
        self, kind: str, choices: list[dict[str, Any]], read: Sequence[Read], samples: Sequence[Sample]
    ) -> dict[str, Any]:
        given, written = sum(len(one.ids) for one in read), sum(len(sample.tokens) for sample in samples)
        usage = {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written}
        return {**self._head("cmpl"), "object": kind, "choices": choices, "usage": usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"{kind}-{secrets.token_hex(8)}", "created": int(time.time()), "model": self.name}


def _finish(sample: Sample) -> str:
    return "length" if sample.finish == "length" else "stop"


def _text_of(tokenizer: Tokenizer, token: int) -> str:
    """A token as a text of its own, different for each: as OpenAI writes one that is no whole character."""
    piece = tokenizer.token_bytes(token)
    try:
        return piece.decode() or tokenizer.label(token)
    except UnicodeDecodeError:
        return "bytes:" + "".join(rf"\x{byte:02x}" for byte in piece)


class Completions:
    """The answers of several runs."""

    def __init__(self, models: Mapping[str, LoadedRun]) -> None:
        """Serve loaded runs by name."""
        self.served, self.began = {name: Served(name, loaded) for name, loaded in models.items()}, int(time.time())

    def application(self, token: str, hosts: Sequence[str]) -> Starlette:
        """The application, behind its guard."""
        routes = [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/completions", partial(self.answered, CompletionAsked, Served.completions), methods=["POST"]),
            Route("/v1/chat/completions", partial(self.answered, ChatAsked, Served.chat), methods=["POST"]),
        ]
        guard = Middleware(
            Guard,  # pyright: ignore
            token=f"Bearer {token}",
            header="authorization",
            hosts=hosts,
            policy="default-src 'none'; frame-ancestors 'none'",
            without=(),
            missing=N_("the API key is missing or wrong: it is the one that vitral serve printed"),
            told=_error,
        )
        handlers: dict[Any, Any] = {VitralError: _refused, HTTPException: _refused, ClientDisconnect: left}
        return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)

    async def models(self, request: Request) -> Response:
        """The runs."""
        about = {"object": "model", "created": self.began, "owned_by": "vitral"}
        return JSONResponse({"object": "list", "data": [{"id": name, **about} for name in self.served]})

    async def answered(self, kind: type[Any], whole: Callable[[Served, Any], Any], request: Request) -> Response:
        """The answer to a request, whole or as events."""
        given = {key: value for key, value in (await json_of(request)).items() if value is not None}
        asked = kind.parse(given, request.url.path.removeprefix("/v1/"))
        if getattr(asked, "max_completion_tokens", None) is not None:
            asked = asked.model_copy(update={"max_tokens": asked.max_completion_tokens})
        run = self._named(asked.model)
        if not asked.stream:
            return JSONResponse(await called_by(run.worker, lambda: whole(run, asked)))
        chunks = run.streamed(asked)
        first = await called_by(run.worker, partial(next, chunks, None))

        async def events() -> AsyncIterator[str]:
            chunk = first
            while chunk is not None and not await request.is_disconnected():
                yield f"data: {json.dumps(chunk)}\n\n"
                try:
                    chunk = await called_by(run.worker, partial(next, chunks, None))
                except (VitralError, HTTPException) as error:
                    chunk, told = None, await _refused(request, error)
                    yield f"data: {bytes(told.body).decode()}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    def _named(self, name: str | None) -> Served:
        """The run with this name, or that `vitral serve` was given in these words; without a name the only one."""
        for run in self.served.values():
            if name in (run.name, run.given) or (name is None and len(self.served) == 1):
                return run
        known = ", ".join(self.served)
        raise HTTPException(NOT_FOUND, _("model: there is no {name!r}; there are {known}", name=name, known=known))


def _error(status: int, sentence: str) -> dict[str, Any]:
    kind = "server_error" if status >= FAULT else "invalid_request_error"
    return {"error": {"message": sentence, "type": kind, "param": None, "code": None}}


async def _refused(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", REFUSED)
    return JSONResponse(_error(status, getattr(error, "detail", str(error))), status_code=status)
