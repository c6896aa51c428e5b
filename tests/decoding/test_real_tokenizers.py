"""Generation with the tokenizers of the data room: text is what they decode, specials stay out."""

import pytest
from small_models import attentive

from vitral.core.errors import UsageError
from vitral.data.config import CorpusConfig
from vitral.data.tokenizers import Tokenizer, build_tokenizer
from vitral.decoding import GenerateOptions, Sampling, beam_search, generate, stream

TEXT = "às vezes é não, às vezes é sim\n" * 20
HOT = Sampling(temperature=2.0)


@pytest.fixture(params=["char", "byte", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each kind of tokenizer, made for the same text."""
    table = {"name": "bpe", "vocab_size": 263} if request.param == "bpe" else request.param
    return build_tokenizer(CorpusConfig.parse({"tokenizer": table}), TEXT, [TEXT])


@pytest.mark.parametrize("prompt", ["", "não"])
def test_text_is_what_the_tokenizer_decodes(prompt: str, tokenizer: Tokenizer) -> None:
    model = attentive(tokenizer.vocab_size, context_length=11)
    samples = generate(model, tokenizer, [prompt], max_tokens=40, sampling=HOT, options=GenerateOptions(num_samples=3))
    for number, sample in enumerate(samples):
        assert sample.text == tokenizer.decode(sample.tokens)
        assert not set(sample.tokens) & set(tokenizer.specials)
        options = GenerateOptions(first_sample=number)
        pieces = list(stream(model, tokenizer, prompt, max_tokens=40, sampling=HOT, options=options))
        assert "".join(pieces) == sample.text
        assert all(pieces)
    best = beam_search(model, tokenizer, prompt, max_tokens=9, num_beams=3)[0]
    assert best.text == tokenizer.decode(best.tokens)


def test_a_character_the_model_has_never_seen_is_named() -> None:
    tokenizer = build_tokenizer(CorpusConfig(), TEXT, [TEXT])
    for prompt, name in (("Ω", "U\\+03A9"), ("\ud800", "U\\+D800")):
        with pytest.raises(UsageError, match=name):
            generate(attentive(tokenizer.vocab_size), tokenizer, [prompt], max_tokens=1, sampling=HOT)
