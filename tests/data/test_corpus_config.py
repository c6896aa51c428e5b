import pytest

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig
from vitral.data.config import BPEConfig, ByteConfig


def test_a_bare_name_and_its_table_are_the_same_tokenizer():
    assert CorpusConfig.parse({"tokenizer": "byte"}) == CorpusConfig.parse({"tokenizer": {"name": "byte"}})
    assert CorpusConfig.parse({"tokenizer": "bpe"}).tokenizer == BPEConfig(vocab_size=512)
    assert CorpusConfig.parse({"tokenizer": "byte"}).tokenizer == ByteConfig()


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (
            {"tokenizer": "chars"},
            "corpus: tokenizer: 'chars' is not one of char, byte, bpe, file; did you mean 'char'?",
        ),
        ({"tokenizer": "bpe:x"}, "corpus: tokenizer: input should be a valid integer, not 'x'"),
        ({"tokenizer": {"name": "bpe", "vocab_size": 255}}, "corpus: tokenizer.vocab_size: input should be greater"),
        ({"source": ""}, "corpus: source: "),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(plain, message):
    with pytest.raises(UsageError) as error:
        CorpusConfig.parse(plain, "corpus")
    assert message in str(error.value)
