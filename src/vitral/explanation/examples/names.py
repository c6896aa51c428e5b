"""Names in worked examples: spellings and nicknames, in two languages, of the names of quantities."""

import unicodedata
from collections.abc import Iterable, Mapping

from vitral.core.config import closest
from vitral.core.language import _
from vitral.explanation.examples.schema import ALIASES, AXES, ONLY_IN_BLOCKS, STREAM_KEYS

OUTPUT = "output"
"""The last quantity of the stream, by its name in every file."""

NICKNAMES: Mapping[str, tuple[str, ...]] = {
    "x": ("input", "inputs", "entrada", "entradas"),
    "embedding": ("E", "w_e", "wte", "embedding_table", "embedding_matrix", "tabela_de_embeddings"),
    "token_embedding": ("embeddings", "token_embeddings", "tok_emb", "word_embeddings"),
    "position_embedding": (
        *("PE", "pos_emb", "position_embeddings", "positional_embedding", "positional_encoding", "position_encoding"),
        *("posicoes", "embedding_posicional", "codificacao_posicional"),
    ),
    "memory": (
        *("encoder", "encoder_states", "encoder_output", "encoder_outputs", "encoder_hidden_states"),
        *("memoria", "codificador", "estados_do_codificador", "saida_do_codificador"),
    ),
    "q": ("query", "queries", "consulta", "consultas"),
    "k": ("key", "keys", "chave", "chaves"),
    "v": ("value", "values", "valor", "valores"),
    "w_q": ("w_query", "query_weights", "pesos_da_consulta"),
    "w_k": ("w_key", "key_weights", "pesos_da_chave"),
    "w_v": ("w_value", "value_weights", "pesos_do_valor"),
    "w_o": ("w_out", "w_output", "output_weights", "pesos_da_saida", "w_0"),
    "scores": (
        *("score", "S", "QK^T", "raw_scores", "attention_scores", "attn_scores"),
        *("pontuacao", "pontuacoes", "escore", "escores", "escores_de_atencao"),
    ),
    "scaled": ("scaled_scores", "scaled_attention_scores", "pontuacoes_escaladas", "escores_escalados", "escalados"),
    "masked": ("masked_scores", "pontuacoes_mascaradas", "escores_mascarados", "mascarados"),
    "weights": (
        *("A", "alpha", "attention", "attention_weights", "attn_weights", "attention_matrix"),
        *("pesos", "pesos_de_atencao", "atencao"),
    ),
    "z": ("context", "context_vectors", "head_output", "head_outputs", "contexto", "saida_da_cabeca"),
    "out": ("attention_output", "attn_output", "attn_out", "saida_da_atencao"),
    OUTPUT: ("outputs", "result", "saida", "saidas", "resultado"),
    "w_up": ("w_in", "w_ff1", "ffn.w_1"),
    "w_down": ("w_ff2", "ffn.w_2"),
    "w_u": ("unembedding", "w_unembed", "w_vocab", "w_head", "lm_head"),
    "logits": ("logit",),
    "probabilities": ("P", "prob", "probs", "probability", "probabilidade", "probabilidades"),
    "next": ("bigram", "bigrams", "proxima", "bigramas"),
    "factor": ("fator",),
    "greedy": ("argmax", "gulosa", "guloso", "escolha"),
}
"""Other words for quantities. A step, or a number that only steps use, may have such a name for itself."""


def spelled(name: str) -> str:
    """A name without what authors vary: case, accents, underscores, carets, brackets, blanks.

    >>> spelled("W^Q"), spelled("w_{q}"), spelled("Saída")
    ('wq', 'wq', 'saida')
    """
    plain = unicodedata.normalize("NFKD", name.casefold())
    return "".join(character for character in plain if character.isalnum())


_SPELLINGS = {
    spelled(name): ALIASES.get(name, name) for name in reversed((*AXES, *ALIASES, *STREAM_KEYS, OUTPUT, "greedy"))
}
_SPELLED = {spelled(word): name for name, words in NICKNAMES.items() for word in words} | _SPELLINGS


class Names:
    """The names of one file: those of the computation, and the author's own, of steps and of numbers for steps."""

    def __init__(self, stream: str, mentioned: Iterable[str] = ()) -> None:
        """Remember the author's own names.

        Args:
            stream: name of the stream's first quantity; that of attention alone is "x".
            mentioned: names that steps have or mention.
        """
        self.stream, self.is_block = stream, stream != "x"
        self.own = {name for name in mentioned if name != OUTPUT and not self._is_fixed(name)}

    def __call__(self, name: str) -> str:
        """The quantity that a name stands for; the name itself if it is unknown or the author's own."""
        if name in self.own:
            return name
        known = _SPELLED.get(spelled(name), name)
        if known == OUTPUT:
            return "resid_post" if self.is_block else "out"
        return self.stream if known in STREAM_KEYS else known

    def _is_fixed(self, name: str) -> bool:
        """Whether a name is that of a quantity of this computation, in any spelling."""
        known = _SPELLINGS.get(spelled(name))
        return known is not None and (self.is_block or known not in ONLY_IN_BLOCKS)


def named(name: str) -> str | None:
    """The quantity that a name stands for in any spelling, if it stands for one."""
    return _SPELLED.get(spelled(name))


def hint(name: str, known: Iterable[str]) -> str:
    """The question whether the nearest of the known names is meant, or the place where they are listed."""
    words = [word for quantity in known for word in (quantity, *NICKNAMES.get(quantity, ()))]
    return closest(spelled(name), words) or _("docs/examples.md lists the names")
