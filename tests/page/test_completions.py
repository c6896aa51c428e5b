"""Runs behind OpenAI's interface: the texts are those of `vitral generate`, the log-probabilities those of the run."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from foreign import run_of
from starlette.testclient import TestClient
from variants import TEXT, TOKENIZER, made

import vitral
from vitral.core.errors import UsageError
from vitral.page.server.completions import Completions
from vitral.runs import load_run

KEY, HOST = "a-secret-key", "127.0.0.1:8123"
SERVE = (
    "import sys; from pathlib import Path; from vitral.runs import load_run; "
    "from vitral.page.server.serving import serve_completions; "
    "serve_completions({Path(each).name: load_run(Path(each)) for each in sys.argv[2:]}, token=sys.argv[1], "
    "announce=lambda address, key: print(address, flush=True))"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run that continues texts, and one of chats."""
    folder = tmp_path_factory.mktemp("served")
    run_of(made("grouped"), folder / "plain")
    lines = list[str]()
    for number in range(60):
        said = [{"role": "user", "content": f"what is it {number}"}, {"role": "assistant", "content": "a light"}]
        lines.append(json.dumps({"messages": said}))
    (folder / "chats.jsonl").write_text("\n".join(lines), encoding="utf-8")
    sizes = {"d_model": 12, "num_layers": 1, "num_heads": 3, "context_length": 64}
    training = {"steps": 2, "evaluate_every": 2, "batch_size": 3, "sample_every": 2}
    vitral.train(folder / "chats.jsonl", folder / "chats", model=sizes, training=training, progress=False)
    return [folder / "plain", folder / "chats"]


@pytest.fixture(scope="module")
def client(folders: list[Path]) -> Iterator[TestClient]:
    application = Completions({one.name: load_run(one) for one in folders}).application(KEY, [HOST])
    headers = {"authorization": f"Bearer {KEY}"}
    with TestClient(application, base_url=f"http://{HOST}", headers=headers) as opened:
        yield opened


def completed(client: TestClient, **asked: Any) -> dict[str, Any]:
    answer = client.post("/v1/completions", json={"model": "plain", **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: Any, status: int) -> str:
    """The line of a refusal in OpenAI's form."""
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    assert "\n" not in error["message"]
    return error["message"]


def test_texts_are_those_that_the_run_generates(client: TestClient, folders: list[Path]) -> None:
    how: dict[str, Any] = {"max_tokens": 20, "temperature": 0.9, "top_p": 0.9, "seed": 4}
    wanted = [one.text for one in vitral.generate(folders[0], "ab", num_samples=3, **how)]
    ids = TOKENIZER.encode("ab").tolist()
    for prompt, echo in ("ab", False), (ids, True), ([ids], False):
        found = completed(client, model=str(folders[0]), prompt=prompt, n=3, echo=echo, **how)
        assert [one["text"] for one in found["choices"]] == ["ab" * echo + one for one in wanted]
    assert [one["finish_reason"] for one in found["choices"]] == ["length"] * 3
    assert found["usage"] == {"prompt_tokens": 2, "completion_tokens": 60, "total_tokens": 62}
    stop = wanted[0][7:9]
    found = completed(client, prompt="ab", stop=stop, **how)["choices"][0]
    assert (found["text"], found["finish_reason"]) == (wanted[0].partition(stop)[0], "stop")
    logs = completed(client, prompt="ab", stop=stop, logprobs=0, echo=True, **{**how, "max_tokens": 10})["choices"][0]
    assert "".join(logs["logprobs"]["tokens"]) == logs["text"] == "ab" + found["text"]
    assert len(logs["logprobs"]["token_logprobs"]) == len(logs["logprobs"]["text_offset"]) == len(logs["text"])
    several = completed(client, prompt=["ab", "h", "ab"], max_tokens=5, temperature=0)["choices"]
    assert [one["index"] for one in several] == [0, 1, 2]


def test_streamed_pieces_are_the_whole_text(client: TestClient) -> None:
    asked = {"prompt": ["ab", "h", "ab"], "n": 2, "seed": 9, "max_tokens": 15}
    whole = completed(client, **asked)["choices"]
    pieces, ends = [""] * 6, {}
    with client.stream("POST", "/v1/completions", json={"model": "plain", "stream": True, **asked}) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    for line in lines:
        (choice,) = json.loads(line)["choices"]
        pieces[choice["index"]] += choice["text"]
        ends[choice["index"]] = choice["finish_reason"]
    assert pieces == [one["text"] for one in whole]
    assert ends == dict.fromkeys(range(6), "length")


def test_log_probabilities_of_an_echo_are_those_of_the_run(client: TestClient, folders: list[Path]) -> None:
    run = vitral.load(folders[0])
    ids = TOKENIZER.encode(TEXT)
    for most in (0, 1):
        found = completed(client, prompt=TEXT, max_tokens=most, echo=True, logprobs=2, temperature=0)
        (choice,) = found["choices"]
        logs = choice["logprobs"]
        assert (len(logs["tokens"]), "".join(logs["tokens"])) == (len(ids) + most, choice["text"])
        assert logs["text_offset"] == list(range(len(ids) + most))
        assert (logs["token_logprobs"][0], logs["top_logprobs"][0]) == (None, None)
        exact = run.trace(TEXT, "logits")["logits"][0].double().log_softmax(-1)
        wanted = exact[range(len(ids) - 1), ids[1:]].tolist()
        assert logs["token_logprobs"][1 : len(ids)] == pytest.approx(wanted, abs=1e-6)
        assert -sum(logs["token_logprobs"][1 : len(ids)]) / (len(ids) - 1) == pytest.approx(run.loss(TEXT), abs=1e-6)
        for row, best in zip(exact, logs["top_logprobs"][1:], strict=False):
            assert sorted(best.values()) == pytest.approx(sorted(row.topk(2).values.tolist()), abs=1e-6)
    (empty,) = completed(client, prompt=[[]], max_tokens=3, echo=True, logprobs=0)["choices"]
    assert empty["logprobs"]["text_offset"] == [0, 1, 2]
    assert "".join(empty["logprobs"]["tokens"]) == empty["text"]
    # A greedy token is the likeliest one, to the bit: lm-evaluation-harness compares the two.
    assert logs["token_logprobs"][-1] == max(logs["top_logprobs"][-1].values())


def test_a_run_of_chats_answers_messages(client: TestClient, folders: list[Path]) -> None:
    asked = {"model": "chats", "messages": [{"role": "user", "content": "what is it"}], "seed": 3, "max_tokens": 12}
    answer = client.post("/v1/chat/completions", json=asked).json()
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    prompt = "<|user|>what is it<|answer|>"
    how: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "seed": 3, "stop": ["<|end|>", "<|user|>"]}
    assert choice["message"]["content"] == vitral.generate(folders[1], prompt, **how)[0].text
    with client.stream("POST", "/v1/chat/completions", json={"stream": True, **asked}) as streamed:
        lines = [json.loads(line[6:]) for line in streamed.iter_lines() if line.startswith("data: {")]
    deltas = [line["choices"][0]["delta"] for line in lines]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta["content"] for delta in deltas) == choice["message"]["content"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("completions", {"prompt": "é"}, 400),
        ("completions", {"prompt": "a" * 14}, 400),
        ("completions", {"prompt": [99]}, 400),
        ("completions", {"prompt": []}, 400),
        ("completions", {"prompt": "a", "best_of": 2}, 400),
        ("completions", {"prompt": "a", "n": 0}, 400),
        ("completions", {"prompt": "a", "max_tokens": 10**9}, 400),
        ("completions", {"prompt": ["a"] * 1000, "n": 100, "max_tokens": 3}, 400),
        ("completions", {"prompt": "a", "presence_penalty": 0.5}, 400),
        ("completions", {"prompt": "a", "logprobs": 1, "max_tokens": 14}, 400),
        ("completions", {"prompt": "a", "logprobs": 1, "stream": True}, 400),
        ("completions", {"prompt": "é", "stream": True}, 400),
        ("completions", {"prompt": ["a", "a" * 14], "stream": True}, 400),
        ("completions", {"prompt": [[1], [99]], "stream": True}, 400),
        ("completions", {"model": "other", "prompt": "a"}, 404),
        ("completions", {"model": None, "prompt": "a"}, 404),
        ("completions", [], 400),
        ("chat/completions", {"messages": [{"role": "user", "content": "a"}]}, 400),
        ("chat/completions", {"model": "chats", "messages": []}, 400),
        ("chat/completions", {"model": "chats", "messages": [{"role": "user", "content": "<|end|>"}]}, 400),
        ("chat/completions", {"model": "chats", "messages": [{"role": "user", "content": "what is it" * 9}]}, 400),
        ("embeddings", {"input": "a"}, 404),
    ],
)
def test_what_is_refused_is_one_line_in_openais_form(client: TestClient, path: str, body: Any, status: int) -> None:
    asked = {"model": "plain", **body} if isinstance(body, dict) else body
    refused(client.post(f"/v1/{path}", json=asked), status)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer another"}, 401),
        ({"authorization": KEY}, 401),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_strangers_are_refused(client: TestClient, headers: dict[str, str], status: int) -> None:
    for path in ("/", "/v1/models"):
        refused(client.get(path, headers=headers), status)


def test_a_run_that_continues_no_text_is_not_served(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not served"):
        Completions({"x": replace(load_run(folders[0]), model=made({"shape": "encoder-decoder"}))})
    with pytest.raises(UsageError, match="nowhere"):
        vitral.serve(tmp_path / "nowhere")


@contextmanager
def served(folders: list[Path]) -> Iterator[str]:
    """The address of a server in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, KEY, *map(str, folders)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


TASK = """task: local
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/test.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
target_delimiter: ""
"""


@pytest.mark.full  # needs the extra `full`
def test_lm_evaluation_harness_measures_the_log_likelihoods_of_the_run(tmp_path: Path) -> None:
    """Its `local-completions` asks for echoes; what it sums is the run's own log-probability of each choice."""
    sizes = {"d_model": 12, "num_layers": 2, "num_heads": 3, "context_length": 32}
    training = {"steps": 20, "evaluate_every": 20, "batch_size": 8, "sample_every": 20}
    run = vitral.train("sample", tmp_path / "run", model=sizes, training=training, progress=False)
    vitral.export(run, tmp_path / "hf", proof=False)  # for its tokenizer
    rows = [("The light of the", [" morning", " house"], 1), ("and", [" the", " zq"], 0)]
    lines = [json.dumps({"context": one, "choices": two, "answer": three}) for one, two, three in rows]
    (tmp_path / "test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "local.yaml").write_text(TASK.replace("FOLDER", str(tmp_path)), encoding="utf-8")
    with served([run.path]) as address:
        model = f"model=run,base_url={address}/completions,tokenizer={tmp_path / 'hf'},max_length=32"
        words = ["--model", "local-completions", "--model_args", model, "--tasks", "local", "--log_samples"]
        words += ["--include_path", str(tmp_path), "--output_path", str(tmp_path / "out")]
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf-home")}
        environment = {**os.environ, **offline, "OPENAI_API_KEY": KEY}
        command = [sys.executable, "-m", "lm_eval", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    for line in samples.read_text("utf-8").splitlines():
        told = json.loads(line)
        for choice, ((found, _greedy),) in zip(told["doc"]["choices"], told["resps"], strict=True):
            context = len(told["doc"]["context"])
            ids = run.tokenizer.encode(told["doc"]["context"] + choice)
            logs = run.trace(ids[:-1], "logits")["logits"][0].double().log_softmax(-1)
            wanted = logs[range(context - 1, len(ids) - 1), ids[context:]].sum()
            assert float(found) == pytest.approx(float(wanted), abs=1e-6 * len(choice))


@pytest.fixture(scope="module")
def address(folders: list[Path]) -> Iterator[str]:
    with served(folders) as found:
        yield found


@pytest.mark.merge
def test_the_openai_client(address: str, folders: list[Path]) -> None:
    import openai

    client = openai.OpenAI(base_url=address, api_key=KEY, max_retries=0)
    assert [one.id for one in client.models.list()] == ["plain", "chats"]
    how: dict[str, Any] = {"model": "plain", "prompt": "ab", "max_tokens": 9, "seed": 2, "temperature": 1.0}
    whole = client.completions.create(**how, logprobs=3, n=2, echo=True)
    wanted = vitral.generate(folders[0], "ab", max_tokens=9, seed=2, temperature=1.0, num_samples=2)
    assert [one.text for one in whole.choices] == ["ab" + one.text for one in wanted]
    assert whole.choices[0].logprobs is not None
    assert len(whole.choices[0].logprobs.token_logprobs or ()) == 11
    pieces = [chunk.choices[0].text for chunk in client.completions.create(**how, stream=True)]
    assert "".join(pieces) == wanted[0].text
    said: list[Any] = [{"role": "user", "content": "what is it"}]
    answer = client.chat.completions.create(model="chats", messages=said, max_completion_tokens=5, seed=1)
    assert answer.choices[0].message.role == "assistant"
    with pytest.raises(openai.AuthenticationError, match="vitral serve"):
        openai.OpenAI(base_url=address, api_key="x", max_retries=0).models.list()
