"""Who may ask: requests to this machine's own address, with the token of the address that was printed.

Any page in a browser can send requests to 127.0.0.1, and by rebinding its name it can even read the answers. So a
request's Host must be ours, its Origin too if it has one, and the data need a token in a header, which no other page
knows and no form can send. The token is in the fragment of the address, which no browser sends anywhere.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any

from vitral.core.language import N_, _

TOKEN = "x-vitral-token"
OPEN = ("/",)
"""Paths without a token: the page, which holds nothing of a run."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """Refuses requests of others before the application sees them, and adds the headers of every answer."""

    def __init__(
        self,
        app: App,
        *,
        token: str,
        hosts: Iterable[str],
        policy: str,
        header: str = TOKEN,
        without: Collection[str] = OPEN,
        missing: str = N_("the token is missing or wrong: open the address that vitral open printed"),
        told: Callable[[int, str], Any] = lambda status, sentence: {"error": sentence},
    ) -> None:
        """Guard an application.

        Args:
            app: the application.
            token: the secret, as the header has it.
            hosts: the values of Host that are ours, as in "127.0.0.1:8000".
            policy: the content security policy of every answer.
            header: has the token.
            without: paths that need none.
            missing: the refusal of a request without it.
            told: a refusal as JSON, of a status and a sentence.
        """
        self.app, self.token, self.header = app, token.encode("ascii"), header.encode("ascii")
        self.without, self.missing, self.told = without, missing, told
        self.hosts = frozenset(host.encode("ascii") for host in hosts)
        self.origins = frozenset(b"http://" + host for host in self.hosts)
        self.headers = [(b"content-security-policy", policy.encode("ascii"))]
        self.headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self.headers]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, with_headers)
        else:
            status, sentence = refusal
            body = json.dumps(self.told(status, sentence)).encode("ascii")
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii"))]
            await with_headers({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        given: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.lower(), []).append(value)
        hosts, origins = given.get(b"host", []), given.get(b"origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 403, _("this server answers to its own address only")
        is_open, site = scope["path"] in self.without, given.get(b"sec-fetch-site", [b"none"])[0]
        is_foreign = not is_open and site not in (b"none", b"same-origin")
        if is_foreign or any(origin.lower() not in self.origins for origin in origins):
            return 403, _("this server answers to its own page only")
        tokens = given.get(self.header, [])
        if not is_open and not (len(tokens) == 1 and hmac.compare_digest(tokens[0], self.token)):
            return 401, _(self.missing)
        return None
