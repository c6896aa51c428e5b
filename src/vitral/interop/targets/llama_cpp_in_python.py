"""A process that answers questions about a GGUF file by llama-cpp-python, each a line of JSON.

It is not part of Vitral's program: where llama.cpp ends its process, Vitral's goes on.
"""

import base64
import importlib
import json
import sys
from typing import Any


def main(path: str, context_length: int) -> None:
    """Answer until the questions end."""
    llama = importlib.import_module("llama_cpp").Llama
    answers, sys.stdout = sys.stdout, sys.stderr
    model = llama(path, n_ctx=context_length, n_batch=context_length, n_gpu_layers=0, logits_all=True, verbose=False)
    for line in sys.stdin:
        print(json.dumps(_answer(model, json.loads(line))), file=answers, flush=True)


def _answer(model: Any, question: dict[str, Any]) -> dict[str, Any]:
    if "text" in question:
        return {"ids": model.tokenize(question["text"].encode("utf-8"), add_bos=False, special=True)}
    if "ids" in question:
        return {"text": model.detokenize(question["ids"], special=True).decode("utf-8", "replace")}
    if "logits" in question:
        model.reset()
        model.eval(question["logits"])
        return {"logits": base64.b64encode(model.scores[: model.n_tokens].astype("<f4").tobytes()).decode("ascii")}
    if "greedy" in question:
        model.reset()
        fed, made = question["greedy"], []
        while len(made) < question["count"]:
            model.eval(fed)
            made.append(int(model.scores[model.n_tokens - 1].argmax()))
            fed = made[-1:]
        return {"ids": made}
    return {"ready": True}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
