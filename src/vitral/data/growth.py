"""Tokenizers that follow another text: new tokens are appended, and no id changes its meaning.

Fine-tuning keeps the rows of embedding and head that a model has learned. Ids are therefore never sorted again.
"""

from collections.abc import Sequence

from vitral.core.checked import checked
from vitral.core.language import N_
from vitral.data.alphabet import label_text
from vitral.data.long_texts import Text
from vitral.data.special_tokens import alphabet_counts
from vitral.data.tokenizers import (
    CharTokenizer,
    DeclaringTokenizer,
    Tokenizer,
    special_tokens,
    undeclared,
    with_special_tokens,
)

_LISTED = 20


@checked(first=True)
def grown(tokenizer: Tokenizer, texts: Sequence[Text], specials: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer with tokens for every character of some texts, outside special tokens, and for special tokens.

    Characters are added to a character tokenizer only, sorted by code point among themselves; the others know every
    text. New special tokens follow the new characters. Existing ids keep their meaning.

    Args:
        tokenizer: the tokenizer of a model.
        texts: the texts to encode.
        specials: special tokens; those that the tokenizer has already are not added again.

    >>> grown(CharTokenizer("bd"), ["abcd"]).alphabet
    'bdac'
    """
    base, declared = undeclared(tokenizer)
    if isinstance(base, CharTokenizer):
        found = alphabet_counts(texts, [*dict.fromkeys([*special_tokens(tokenizer), *specials])])
        known = set(base.alphabet)
        new = "".join(character for character in found if character not in known)
        base = CharTokenizer(base.alphabet + new) if new else base
    same = DeclaringTokenizer(base, declared) if declared else base
    return with_special_tokens(same, [text for text in specials if text not in special_tokens(tokenizer)])


@checked(first=True)
def extends(tokenizer: Tokenizer, former: Tokenizer) -> bool:
    """Whether every id of the former tokenizer means the same, and every text that it encodes has the same tokens."""
    (base, declared), (former_base, former_declared) = undeclared(tokenizer), undeclared(former)
    if isinstance(base, CharTokenizer) and isinstance(former_base, CharTokenizer):
        is_same_base = base.alphabet.startswith(former_base.alphabet)
    else:
        is_same_base = base.plain() == former_base.plain()
    kept, added = declared[: len(former_declared)], declared[len(former_declared) :]
    return is_same_base and kept == former_declared and all(token >= former.vocab_size for _, token in added)


def growth_notes(tokenizer: Tokenizer, former: Tokenizer) -> list[str]:
    """The new tokens of a grown tokenizer: a sentence for characters, one for special tokens."""
    new = range(former.vocab_size, tokenizer.vocab_size)
    declared = {token for _, token in undeclared(tokenizer)[1]}
    characters = [tokenizer.label(token) for token in new if token not in declared]
    specials = [label_text(text) for text in special_tokens(tokenizer)[len(special_tokens(former)) :]]
    notes = []
    if characters:
        notes.append(_noted(characters, NEW_CHARACTERS))
    if specials:
        notes.append(_noted(specials, NEW_SPECIAL_TOKENS))
    return notes


NEW_CHARACTERS = (
    N_("The vocabulary of the run it starts from has grown: {number:,} new character ({names})."),
    N_("The vocabulary of the run it starts from has grown: {number:,} new characters ({names})."),
)
NEW_SPECIAL_TOKENS = (
    N_("The vocabulary of the run it starts from has grown: {number:,} new special token ({names})."),
    N_("The vocabulary of the run it starts from has grown: {number:,} new special tokens ({names})."),
)


def _noted(labels: Sequence[str], sentences: tuple[str, str]) -> str:
    listed = " ".join(labels[:_LISTED]) + (" …" if len(labels) > _LISTED else "")
    return sentences[len(labels) > 1].format(number=len(labels), names=listed)
