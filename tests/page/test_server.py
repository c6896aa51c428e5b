"""The page over a server on this machine: its numbers are the run's, and nobody else can ask for them."""

import asyncio
import json
import random
import re
import shutil
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from edited import edited_trace
from foreign import run_of
from fresh import printed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from variants import TEXT, TOKENIZER, made

import vitral
from vitral.app.terminal import run as command
from vitral.decoding import Sampling, choose, distribution
from vitral.inspection.edits import edits_of, existing
from vitral.inspection.lens import lens_logits
from vitral.model import Transformer
from vitral.page.server.app import MOST_BODY, Server
from vitral.page.server.security import TOKEN

SECRET, HOST = "a-secret-token", "127.0.0.1:8123"
IDS = TOKENIZER.encode(TEXT).tolist()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny <b>"
    run_of(made("grouped"), folder)
    return folder


def client(*paths: Path, **headers: str) -> TestClient:
    application = Server(paths).application(SECRET, [HOST])
    return TestClient(application, base_url=f"http://{HOST}", headers={TOKEN: SECRET, **headers})


@pytest.fixture(scope="module")
def page(run: Path) -> Iterator[TestClient]:
    with client(run) as opened:
        yield opened


def refused(answer: Any, *statuses: int) -> str:
    """The line of a refusal."""
    assert answer.status_code in statuses, answer.text
    (line,) = answer.json().values()
    assert "\n" not in line
    return line


def test_the_page_is_there_before_torch_and_says_nothing_of_the_run(run: Path) -> None:
    code = (
        "import sys\nimport vitral.app.terminal, vitral.page.server.serving, uvicorn.server\n"
        "from vitral.page.server.app import Server\nfrom pathlib import Path\n"
        f"server = Server([Path({str(run)!r})])\nserver.application('t', ['h'])\n"
        "assert not {'torch', 'numpy', 'pydantic', 'babel', 'jinja2', 'vitral.app.run'} & set(sys.modules)\n"
        "assert 'tiny' not in server.page\n"
    )
    printed(code)


def test_every_answer_has_a_strict_policy_and_none_is_for_other_pages(page: TestClient) -> None:
    for answer in (page.get("/"), page.get("/runs"), page.get("/nothing"), page.post("/trace", json={"names": 3})):
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "set-cookie" not in answer.headers


def test_the_policy_knows_the_page_s_script_and_style(page: TestClient) -> None:
    from base64 import b64encode
    from hashlib import sha256

    answer = page.get("/")
    found = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", answer.text, re.DOTALL)
    assert len(found) == 2
    for each in found:
        assert (
            f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'"
            in answer.headers["content-security-policy"]
        )


STRANGERS = [
    ({"host": "evil.example:8123"}, 403),
    ({"host": "127.0.0.1"}, 403),
    ({"host": "127.0.0.1:8124"}, 403),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "https://127.0.0.1:8123"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({TOKEN: ""}, 401),
    ({TOKEN: SECRET[:-1]}, 401),
    ({TOKEN: SECRET + "x"}, 401),
]


@pytest.mark.parametrize(("headers", "status"), STRANGERS)
def test_strangers_get_nothing(headers: dict[str, str], status: int, page: TestClient) -> None:
    for path in ("/runs", "/words"):
        refused(page.get(path, headers=headers), status)
    for path in ("/about", "/anatomy", "/encode", "/next", "/numbers", "/trace"):
        refused(page.post(path, json={}, headers=headers), status)
    if status == 403 and "sec-fetch-site" not in headers:
        refused(page.get("/", headers=headers), 403)


def test_no_token_in_an_address_a_cookie_or_a_form_helps(run: Path) -> None:
    with TestClient(Server([run]).application(SECRET, [HOST]), base_url=f"http://{HOST}") as other:
        assert other.get("/").status_code == 200
        for answer in (
            other.get(f"/runs?token={SECRET}"),
            other.get("/runs", headers={"cookie": f"token={SECRET}", "authorization": f"Bearer {SECRET}"}),
            other.post("/trace", data={TOKEN: SECRET}),
            other.options("/trace", headers={"origin": f"http://{HOST}"}),
        ):
            refused(answer, 401)


def tensors(answer: Any) -> dict[str, torch.Tensor]:
    assert answer.status_code == 200, answer.text
    return safetensors.torch.load(answer.content)


def test_numbers_are_those_of_the_run(run: Path, page: TestClient) -> None:
    loaded, rng = vitral.load(run), random.Random(1)
    about = page.post("/about", json={"run": 0}).json()
    assert (about["name"], about["names"]) == ("tiny <b>", loaded.model.activation_names)
    edits = [{"at": "blocks.0.attn.z", "heads": [1], "positions": [2], "do": "mean"}]
    for made_here in ([], edits):
        found = tensors(page.post("/trace", json={"ids": IDS, "edits": made_here}))
        wanted = loaded.trace(TEXT, edits=made_here)
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
        names = rng.sample(sorted(wanted), 4)
        by_text = tensors(page.post("/trace", json={"text": TEXT, "names": names, "edits": made_here}))
        assert by_text.keys() == set(names)
        for name in names:
            torch.testing.assert_close(by_text[name], wanted[name])
    read = [*about["stream"], *about["contributions"]]
    asked = [f"lens.{name}" for name in read] + ["blocks.0.attn.weights@3", f"lens.{read[1]}@5"]
    found, wanted = tensors(page.post("/trace", json={"ids": IDS, "names": asked})), loaded.trace(TEXT)
    for name in read:
        torch.testing.assert_close(found[f"lens.{name}"], lens_logits(loaded.model, wanted[name]))
    assert torch.equal(found[asked[-2]], wanted["blocks.0.attn.weights"][:, :, 3:4])
    torch.testing.assert_close(found[asked[-1]], found[f"lens.{read[1]}"][:, 5:6])


def test_readings_are_those_of_the_logits(run: Path, page: TestClient) -> None:
    loaded = vitral.load(run)
    about = page.post("/about", json={"run": 0}).json()
    logits = loaded.trace(TEXT)
    read = [*about["stream"], *about["contributions"]]
    asked = ["rated", "read.logits", *(f"read.{name}" for name in read), f"read.{read[2]}@4", "logits@3"]
    found = tensors(page.post("/trace", json={"ids": IDS, "names": asked}))
    for name in (*read, "logits"):
        of = logits[name] if name == "logits" else lens_logits(loaded.model, logits[name])
        share, token = of.softmax(-1).max(-1)
        torch.testing.assert_close(found[f"read.{name}"], torch.stack([token.float(), share], -1))
    torch.testing.assert_close(found[f"read.{read[2]}@4"], found[f"read.{read[2]}"][:, 4:5])
    torch.testing.assert_close(found["logits@3"], logits["logits"][:, 3:4])
    shares = logits["logits"][0].double().softmax(-1)
    loss, rank = found["rated"][0].T
    assert (bool(loss[0].isnan()), float(rank[0])) == (True, 0.0)
    for place, token in enumerate(IDS[1:]):
        assert float(loss[place + 1]) == pytest.approx(-float(shares[place, token].log()), rel=1e-5)
        assert rank[place + 1] == 1 + int((shares[place] > shares[place, token]).sum())


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a context of 200 tokens."""
    model = made({"d_model": 12, "num_heads": 6, "num_kv_heads": 2, "context_length": 200})
    folder = tmp_path_factory.mktemp("long") / "long"
    run_of(model, folder)
    return folder


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of each trace that is computed, but for model and tokens."""
    found, trace = list[Any](), Transformer.trace
    monkeypatch.setattr(Transformer, "trace", lambda *given, **more: found.append(given[2:]) or trace(*given, **more))
    return found


@pytest.mark.parametrize(
    ("time", "edits"), [(1, []), (64, []), (65, [{"at": "blocks.0.attn.z", "heads": [4], "do": "zero"}]), (200, [])]
)
def test_small_maps_are_the_largest_of_each_patch_and_nothing_else_is_whole(
    time: int, edits: list, long_run: Path, computed: list[Any]
) -> None:
    loaded = vitral.load(long_run)
    ids = [(place * 7 + place // 5) % 11 for place in range(time)]
    truth = edited_trace(loaded.model, torch.tensor([ids]), None, edits_of(edits))
    whole, last = "blocks.1.attn.weights", time - 1
    names = [f"pooled.{whole}", f"mean.{whole}@{last}", "blocks.0.attn.masked#4", "brought.blocks.1.attn.v"]
    with client(long_run) as page:
        page.post("/about", json={"run": 0})
        found = tensors(page.post("/trace", json={"ids": ids, "names": names, "edits": edits}))
    assert whole not in set(*computed[-1][:1])
    side = min(time, 64)
    patches = torch.full((1, 6, side, side), -torch.inf)
    for row in range(time):
        for column in range(time):
            at = (0, slice(None), row * side // time, column * side // time)
            patches[at] = torch.maximum(patches[at], truth[whole][0, :, row, column])
    assert torch.equal(found[names[0]], patches)
    torch.testing.assert_close(found[names[1]], truth[whole].mean(1, keepdim=True)[:, :, last:])
    torch.testing.assert_close(found[names[2]], truth["blocks.0.attn.masked"][:, 4:5])
    mixer, values = loaded.model.state_dict()["blocks.1.attn.out_proj.weight"], truth["blocks.1.attn.v"]
    for head in range(6):
        brought = values[0, head // 3] @ mixer[:, 2 * head : 2 * head + 2].T
        torch.testing.assert_close(found[names[3]][0, head], brought.norm(dim=-1))


def test_a_sentence_is_computed_once_for_all_that_is_asked_of_it(run: Path, computed: list[Any]) -> None:
    edits = [{"at": "blocks.0.mlp.out", "do": "zero"}]
    with client(run) as page:
        page.post("/trace", json={"ids": [1, 2], "names": ["blocks.0.attn.weights"]})
        computed.clear()
        for made_here in ([], edits, [], edits):
            for names in (["blocks.0.attn.weights"], ["lens.embed@1"], ["embed", "read.blocks.0.attn.out"]):
                assert page.post("/trace", json={"ids": [1, 2], "names": names, "edits": made_here}).status_code == 200
        assert len(computed) == 1
        page.post("/trace", json={"ids": [1, 2], "names": ["blocks.0.attn.q"]})
        assert len(computed) == 2


def test_the_graph_has_no_numbers_and_each_can_be_had(run: Path, page: TestClient) -> None:
    model = vitral.load(run).model
    answer = page.post("/anatomy", json={})
    assert answer.status_code == 200, answer.text
    graph = answer.json()
    assert set(graph["outputs"]) == set(model.activation_names)
    names = [each["name"] for each in graph["constants"]]
    assert "token_embedding.weight" in names
    cells: dict[str, Any] = dict.fromkeys(names[1:]) | {names[0]: [1, 0]}
    found = tensors(page.post("/numbers", json={"cells": cells}))
    truth = model.state_dict()
    for name in set(names[1:]) & set(truth):
        assert torch.equal(found[name], truth[name].flatten().float())
    assert torch.equal(found[names[0]], truth[names[0]].flatten()[[1, 0]])


def test_the_tokens_of_any_text(page: TestClient) -> None:
    for text in ("", TEXT, f"é{TEXT[:2]}東é", "\ud800"):
        answer = page.post("/encode", content=json.dumps({"text": text}))
        seen = "".join(each for each in text if each in TEXT)
        unseen = list(dict.fromkeys(each for each in text if each not in TEXT))
        assert answer.json() == {"ids": TOKENIZER.encode(seen).tolist(), "unseen": unseen}


def frames(body: bytes, vocabulary: int) -> list[tuple[int, torch.Tensor]]:
    size = 4 + 4 * vocabulary
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return [
        (struct.unpack("<i", each[:4])[0], torch.frombuffer(bytearray(each[4:]), dtype=torch.float32))
        for each in pieces
    ]


PATCHES = [
    {"at": "blocks.0.resid_post", "do": "patch", "from": TEXT[::-1]},
    {"at": "blocks.1.attn.weights", "do": "patch", "from": TEXT[1:] + TEXT[0]},
    {"at": "blocks.1.mlp.out", "do": "patch", "from": "abc", "positions": [1, 2, 5]},
]


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [{"at": "blocks.1.mlp.out", "do": "zero"}],
        [{"at": "embed", "do": "zero", "positions": [5, 99]}],
        PATCHES,
    ],
)
def test_drawn_tokens_are_those_of_the_library_past_the_context_too(edits: list, run: Path, page: TestClient) -> None:
    loaded = vitral.load(run)
    ids, numbers = [*IDS], [0.1, 0.9, 0.5, 0.3, 0.7, 0.2, 0.99, 0.0, 0.45]
    sampling = {"temperature": 0.8, "top_k": 5, "top_p": None, "min_p": None}
    answer = page.post("/next", json={"ids": ids, "numbers": numbers, "sampling": sampling, "edits": edits})
    found = frames(answer.content, 11)
    assert len(found) == len(numbers)
    begin, context = 0, loaded.model.config.context_length
    for (token, logits), number in zip(found, numbers, strict=True):
        if len(ids) - begin > context:
            begin = len(ids) - context // 2
        here = existing(
            edits_of(edits), len(ids) - begin, {each["from"]: len(each["from"]) for each in edits if "from" in each}
        )
        wanted = loaded.trace(TOKENIZER.decode(ids[begin:]), ["logits"], edits=here)["logits"][:, -1]
        torch.testing.assert_close(logits, wanted[0], rtol=1e-4, atol=1e-5)
        likely = distribution(logits[None], Sampling(temperature=0.8, top_k=5), forbidden=TOKENIZER.specials)
        assert token == int(choose(likely, torch.tensor([number]))[0])
        ids.append(token)


def test_a_stream_stops_within_one_token_of_a_disconnect(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitral.page.server.runs import Opened

    server, drawn = Server([run]), []
    whole = Opened.drawn
    monkeypatch.setattr(
        Opened, "drawn", lambda self, asked: (drawn.append(each) or each for each in whole(self, asked))
    )
    application = server.application(SECRET, [HOST])
    body = json.dumps({"ids": [1], "numbers": [0.5] * 5000}).encode()
    sent: list[bytes] = []
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if receive.first:  # pyright: ignore
            receive.first = False  # pyright: ignore
            return {"type": "http.request", "body": body, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    receive.first = True  # pyright: ignore

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if len([each for each in sent if each]) == 3:
            left.set()

    headers = [(b"host", HOST.encode()), (TOKEN.encode(), SECRET.encode())]
    scope = {"type": "http", "method": "POST", "path": "/next", "headers": headers, "query_string": b"", "asgi": {}}
    asyncio.run(application(scope, receive, send))
    assert 3 <= len(drawn) <= 5


NAMES = (
    *("embd", "lens.logits", "embed@1", "read.embed@1", "read.blocks.0.attn.z", "rated@0", "embed@", "embed@²"),
    *(
        "embed#0",
        "pooled.embed",
        "pooled.blocks.0.attn.weights@0",
        "mean.blocks.0.attn.weights#0",
        "blocks.0.attn.weights#6",
    ),
    *("blocks.0.attn.weights#", "rated#0", "brought.blocks.0.attn.q"),
)
PATCH = {"at": "embed", "do": "patch"}
BROKEN: list[tuple[str, Any, int]] = [
    *(("/trace", each, 400) for each in (b"{", b"[]", b"[" * 100_000)),
    *(("/trace", {"ids": [1], "names": [name]}, 422) for name in NAMES),
    *(("/trace", {"ids": ids}, 422) for ids in ([], [11], [-1], [2**70], [1] * 14)),
    *(
        ("/trace", each, 422)
        for each in ({}, {"ids": [1], "text": "a"}, {"text": "é"}, {"ids": [1], "path": "/etc/passwd"})
    ),
    *(("/trace", {"ids": [1], "edits": [each]}, 422) for each in (3, PATCH | {"from": "é"})),
    ("/trace", {"ids": [1], "step": 7}, 404),
    ("/trace", {"ids": [1], "run": 1}, 404),
    ("/encode", {"text": "a", "run": 1}, 404),
    ("/next", {"ids": [1], "numbers": [1.0]}, 422),
    *(
        ("/next", {"ids": [1], "numbers": [0.5], "sampling": each}, 422)
        for each in ({"top_k": 99}, {"temperature": -1})
    ),
    *(
        ("/next", {"ids": [1], "numbers": [0.5], "edits": [PATCH | {"from": each}]}, 422)
        for each in ("", "é", "a" * 99)
    ),
    ("/next", {"ids": [1], "numbers": [0.5], "edits": [{"at": "embed", "do": "zero", "heads": [3]}]}, 422),
    ("/numbers", {"cells": {"nothing": [0]}}, 422),
    *(("/numbers", {"cells": {"token_embedding.weight": [each]}}, 422) for each in (-1, 10**9)),
]


@pytest.mark.parametrize(("path", "body", "status"), BROKEN)
def test_a_broken_request_is_refused_in_one_line(path: str, body: Any, status: int, page: TestClient) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    refused(page.post(path, content=raw), status)


def test_methods_paths_and_sizes(page: TestClient) -> None:
    refused(page.get("/trace"), 405)
    refused(page.post("/"), 405)
    refused(page.get("/../../etc/passwd"), 404)
    refused(page.post("/trace", content=b" " * (MOST_BODY + 1)), 413)


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
_KEYS = ("run", "ids", "text", "names", "edits", "step", "numbers", "prompt", "sampling", "whole")
_LIKELY = st.fixed_dictionaries(
    {"ids": st.lists(st.integers(0, 10), min_size=1, max_size=13) | _PLAIN},
    optional={
        **{key: _PLAIN for key in _KEYS if key != "ids"},
        "edits": st.lists(
            st.fixed_dictionaries(
                {"at": st.sampled_from(["embed", "blocks.0.attn.masked", "logits", "x"])},
                optional={
                    "do": st.sampled_from(["zero", "mean", "scale", "set", "patch"]) | _PLAIN,
                    "positions": st.lists(st.integers(-1, 13), max_size=3) | _PLAIN,
                    "heads": st.lists(st.integers(-1, 9), max_size=3) | _PLAIN,
                    "factor": st.floats() | _PLAIN,
                    "value": st.floats() | _PLAIN,
                    "from": st.text("abcé \n", max_size=5) | _PLAIN,
                },
            ),
            max_size=2,
        ),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(["/about", "/encode", "/trace", "/next"]), body=_LIKELY | _PLAIN | st.binary(max_size=60))
def test_no_request_is_a_fault(path: str, body: Any, page: TestClient) -> None:
    if isinstance(body, dict):
        body.pop("whole", None)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", errors="surrogatepass")
    answer = page.post(path, content=raw)
    if answer.status_code != 200:
        refused(answer, *range(400, 500))


def test_a_run_that_is_trained_on_or_deleted_is_said(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tiny"
    shutil.copytree(run, copy)
    with client(copy) as page:
        first = page.post("/trace", json={"ids": [1], "names": ["logits"]})
        assert "x-vitral-newer" not in first.headers
        (step,) = (copy / "steps").iterdir()
        shutil.copytree(step, copy / "steps" / "step-00000900")
        second = page.post("/trace", json={"ids": [1], "names": ["logits"]})
        assert (second.content, second.headers["x-vitral-newer"]) == (first.content, "900")
        shutil.rmtree(copy)
        for path, body in (("/trace", {"ids": [1]}), ("/about", {}), ("/next", {"ids": [1], "numbers": [0.5]})):
            assert str(copy) in refused(page.post(path, json=body), 410)


def test_several_runs_by_their_places(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    next((broken / "steps").rglob("model.safetensors")).write_bytes(b"no weights")
    with client(run, other, broken) as page:
        assert page.get("/runs").json() == [
            {"id": place, "name": name} for place, name in enumerate(("tiny <b>", "other", "broken"))
        ]
        assert page.post("/about", json={"run": 1}).json()["name"] == "other"
        assert "broken" in refused(page.post("/about", json={"run": 2}), 422)


def test_a_command_that_cannot_serve_says_why(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command(["open", str(tmp_path), "--no-browser"]) == 2
    assert "not a run" in capfd.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert command(["open", str(run), "--no-browser", "--port", port]) == 2
    assert port in capfd.readouterr().err
