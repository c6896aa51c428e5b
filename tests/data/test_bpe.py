from vitral.data import bpe_tokenizer
from vitral.data.engines import MAX_TOKEN_BYTES, learn_merges, numbered_merges

BLOCKS = ["low low low low low lower lower newest newest newest newest newest newest widest widest widest"]


def test_merges_worked_by_hand():
    # newest 6 times, widest 3: "es" and "st" occur 9 times, "we" (lower, newest) 8, "lo" and "ow" 7. Of "es" and "st"
    # the pair with the lower ids is merged; then "es" + "t" occurs 9 times.
    assert learn_merges(BLOCKS, 258) == [[ord("e"), ord("s")], [256, ord("t")]]
    assert bpe_tokenizer(learn_merges(BLOCKS, 258)).token_bytes(257) == b"est"


def test_encoding_applies_the_merges_in_order():
    tokenizer = bpe_tokenizer(((98, 99), (97, 98)))  # b+c comes before a+b
    assert tokenizer.encode("abc").tolist() == [97, 256]
    assert tokenizer.encode("aba").tolist() == [257, 97]


def test_no_pair_is_counted_across_blocks_and_once_is_not_enough():
    assert learn_merges(["ab", "ba"], 300) == []
    assert learn_merges(["ab", "ab"], 300) == [[97, 98]]
    assert bpe_tokenizer(()).vocab_size == 256


def test_a_token_made_in_two_ways_is_one_token():
    merges = numbered_merges([("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc"), ("abc", "d")])
    assert merges == [[97, 98], [98, 99], [256, 99], [97, 257], [258, 100]]
    tokenizer = bpe_tokenizer(merges)
    assert tokenizer.vocab_size == 260
    assert tokenizer.token_bytes(259) == b"abcd"
    assert tokenizer.token_bytes(258) == b"abc"
    assert tokenizer.decode(tokenizer.encode("abc ab bc abcabc")) == "abc ab bc abcabc"


def test_a_run_of_one_character_makes_no_endless_token():
    merges = learn_merges(["x" * 5000], 400)
    tokenizer = bpe_tokenizer(merges)
    assert max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)) <= MAX_TOKEN_BYTES
    assert tokenizer.decode(tokenizer.encode("x" * 100_003)) == "x" * 100_003
