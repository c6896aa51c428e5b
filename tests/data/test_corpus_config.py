import pytest

from vitral.core.errors import UsageError
from vitral.data import BPEConfig, ByteConfig, CorpusConfig


def test_a_bare_name_and_its_table_are_the_same_tokenizer():
    assert CorpusConfig.parse({"tokenizer": "byte"}) == CorpusConfig.parse({"tokenizer": {"name": "byte"}})
    assert CorpusConfig.parse({"tokenizer": "bpe"}).tokenizer == BPEConfig(vocab_size=512)
    assert CorpusConfig.parse({"tokenizer": "byte"}).tokenizer == ByteConfig()


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"tokenizer": "chars"}, "corpus: tokenizer: unknown tokenizer 'chars', did you mean 'char'?"),
        ({"tokenizer": {"name": "bep"}}, "corpus: tokenizer: unknown tokenizer 'bep', did you mean 'bpe'?"),
        (
            {"tokenizer": {"vocab_size": 300}},
            "corpus: tokenizer: the table of a tokenizer needs a name, known: bpe, byte",
        ),
        ({"tokenizer": 3}, "corpus: tokenizer: expected the name of a tokenizer or a table, not 3"),
        ({"tokenizer": {"name": "bpe", "vocab_size": 255}}, "corpus: tokenizer.vocab_size: input should be greater"),
        ({"tokenizer": {"name": "bpe", "vocab": 300}}, "did you mean 'vocab_size'?"),
        ({"source": ""}, "corpus: source: "),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(plain, message):
    with pytest.raises(UsageError) as error:
        CorpusConfig.parse(plain, "corpus")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
