"""Tokenizers that follow another text: new tokens are appended, and no id changes its meaning.

Fine-tuning keeps the rows of embedding and head that a model has learned. Ids are therefore never sorted again.
"""

from collections.abc import Sequence

from vitral.core.language import N_
from vitral.data.alphabet import label_text
from vitral.data.long_texts import Text
from vitral.data.special_tokens import alphabet_counts
from vitral.data.tokenizers import Tokenizer, with_special_tokens

_LISTED = 20


def grown(tokenizer: Tokenizer, texts: Sequence[Text], specials: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer with tokens for every character of some texts, outside special tokens, and for special tokens.

    Characters are added to a character tokenizer only, sorted by code point among themselves; the others know every
    text. New special tokens follow the new characters. Existing ids keep their meaning.

    Args:
        tokenizer: the tokenizer of a model.
        texts: the texts to encode.
        specials: special tokens; those that the tokenizer has already are not added again.

    >>> from vitral.data.tokenizers import char_tokenizer
    >>> grown(char_tokenizer("bd"), ["abcd"]).alphabet
    'bdac'
    """
    wider, added = tokenizer, [text for text in specials if text not in tokenizer.declared]
    if tokenizer.name == "char":
        found = alphabet_counts(texts, [*tokenizer.declared, *added])
        new = [character for character in found if character not in tokenizer.alphabet]
        wider = Tokenizer({**tokenizer.data, "tokens": [*tokenizer.words, *new]})
    return with_special_tokens(wider, added)


def extends(tokenizer: Tokenizer, former: Tokenizer) -> bool:
    """Whether every id of the former tokenizer means the same, and every text that it encodes has the same tokens."""
    kept, words = len(former.declared), former.data.get("tokens", [])
    special = list(tokenizer.declared.items())
    begin = {"tokens": tokenizer.data.get("tokens", [])[: len(words)], "special_tokens": dict(special[:kept])}
    is_same = {**tokenizer.data, **begin} == {**former.data, "tokens": words, "special_tokens": former.declared}
    return is_same and all(token >= former.vocab_size for _, token in special[kept:])


def growth_notes(tokenizer: Tokenizer, former: Tokenizer) -> list[str]:
    """The new tokens of a grown tokenizer: a sentence for characters, one for special tokens."""
    special = {*tokenizer.declared.values()}
    new = [token for token in range(former.vocab_size, tokenizer.vocab_size) if token not in special]
    characters = [tokenizer.label(token) for token in new]
    specials = [label_text(text) for text in list(tokenizer.declared)[len(former.declared) :]]
    named = (
        (characters, N_("The vocabulary of the run it starts from has grown by new characters: {number:,} ({names}).")),
        (
            specials,
            N_("The vocabulary of the run it starts from has grown by new special tokens: {number:,} ({names})."),
        ),
    )
    return [sentence.format(number=len(labels), names=_listed(labels)) for labels, sentence in named if labels]


def _listed(labels: Sequence[str]) -> str:
    return " ".join(labels[:_LISTED]) + (" …" if len(labels) > _LISTED else "")
