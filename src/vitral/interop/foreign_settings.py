"""Reading another library's configuration: every key is understood, harmless, or refused with the reason."""

import re
from collections.abc import Mapping
from typing import Any

from vitral.core.config import shown
from vitral.core.errors import UsageError

HARMLESS = re.compile(
    r"""
    _attn_implementation|_attn_implementation_autoset|_commit_hash|_name_or_path|_num_labels|activation_dropout|
    architectures|attention_dropout|attention_probs_dropout_prob|attn_pdrop|auto_map|bad_words_ids|
    begin_suppress_tokens|bos_token_id|chunk_size_feed_forward|classifier_dropout|decoder_start_token_id|
    diversity_penalty|do_sample|dropout|dtype|early_stopping|emb_pdrop|embd_pdrop|embed_dim|embed_dropout|
    encoder_no_repeat_ngram_size|eos_token_id|exponential_decay_length_penalty|finetuning_task|forced_bos_token_id|
    forced_eos_token_id|gradient_checkpointing|hidden_dropout|hidden_dropout_prob|id2label|init_device|init_std|
    initializer_range|is_encoder_decoder|is_llama_config|keys_to_ignore_at_inference|label2id|layerdrop|
    learned_embeddings|length_penalty|max_length|min_length|model_type|no_repeat_ngram_size|num_beam_groups|num_beams|
    num_return_sequences|output_attentions|output_hidden_states|output_past|output_scores|pad_token_id|prefix|
    pooler_\w+|pretraining_tp|problem_type|remove_invalid_values|repetition_penalty|resid_dropout|resid_pdrop|return_dict|
    return_dict_in_generate|rope_interleaved|scale_embeddings|sep_token_id|slow_but_exact|summary_activation|
    summary_first_dropout|summary_proj_to_labels|summary_type|summary_use_proj|suppress_tokens|task_specific_params|
    temperature|tf_legacy_loss|tie_encoder_decoder|tokenizer_class|tokenizer_name|tokens_per_eos|top_k|top_p|
    torch_dtype|torchscript|transformers\.js_config|transformers_version|type_vocab_size|typical_p|unk_token_id|
    use_bfloat16|use_cache
    """,
    re.VERBOSE,
)
"""Keys that do not enter the computation of the logits outside training."""


class Settings:
    """A `config.json`, from which every key is taken once.

    Attributes:
        where: the file, for messages.
    """

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        """Begin with all keys."""
        self._left, self.where = {key: value for key, value in data.items() if not HARMLESS.fullmatch(key)}, where

    def __contains__(self, key: str) -> bool:
        """Whether a key is there and has not been taken; its value may be null."""
        return key in self._left

    def given(self, key: str) -> bool:
        """Whether a key is there, has not been taken, and is not null."""
        return self._left.get(key) is not None

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key; the default where there is none, or null."""
        value = self._left.pop(key, None)
        return default if value is None else value

    def add(self, key: str, value: Any) -> None:
        """Another value for a key that has been taken."""
        self._left[key] = value

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1.

        Raises:
            UsageError: it is missing, or no such number.
        """
        value = self.take(key, default)
        if type(value) is not int or not 1 <= value <= 2**24:
            raise self.refused(key, value)
        return value

    def real(self, key: str, default: float) -> float:
        """A positive number.

        Raises:
            UsageError: it is none.
        """
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise self.refused(key, value)
        return float(value)

    def truth(self, key: str, default: bool) -> bool:
        """True or false; null is false.

        Raises:
            UsageError: it is neither, or null where the default is true.
        """
        value = self._unless_null(key, default)
        if not isinstance(value, bool):
            raise self.refused(key, value)
        return value

    def choice(self, key: str, known: Mapping[str, Any], default: str) -> Any:
        """What the value of a key is called here.

        Raises:
            UsageError: the value is not known.
        """
        value = self.take(key, default)
        if not isinstance(value, str) or value not in known:
            raise self.refused(key, value)
        return known[value]

    def only(self, **values: Any) -> None:
        """Keys that must have these values where they are given.

        Raises:
            UsageError: one has another.
        """
        for key, value in values.items():
            given = self._unless_null(key, value)
            if given != value or isinstance(given, bool) != isinstance(value, bool):
                raise self.refused(key, given)

    def _unless_null(self, key: str, default: Any) -> Any:
        """The value of a key; null stands for the default only where the default is as false as null is."""
        if key in self and default and self._left[key] is None:
            raise self.refused(key, self._left[key])
        return self.take(key, default)

    def inside(self, key: str) -> "Settings":
        """The table of a key; an empty one where there is none.

        Raises:
            UsageError: it is no table.
        """
        value = self.take(key, {})
        if not isinstance(value, Mapping):
            raise self.refused(key, value)
        return Settings(value, f"{self.where}: {key}")

    def end(self) -> None:
        """Every key has been taken.

        Raises:
            UsageError: one is left, which may change the numbers; false, 0 or an empty list may, too, where another
                value is the default.
        """
        for key, value in self._left.items():
            if value is not None:
                raise UsageError(
                    "{where}: {key} = {value} is not known here, and may change the numbers",
                    where=self.where,
                    key=key,
                    value=shown(value),
                )

    def contradiction(self, key: str, value: object, other: object) -> UsageError:
        """The error for a value that is not the one that another key says, or the default of the form."""
        return UsageError(
            "{where}: {key} = {value}, but another key, or the default of this form, says {other}",
            where=self.where,
            key=key,
            value=shown(value),
            other=shown(other),
        )

    def refused(self, key: str, value: Any) -> UsageError:
        """The error for a value that Vitral's model does not have."""
        return UsageError(
            "{where}: {key} = {value} cannot be expressed in Vitral", where=self.where, key=key, value=shown(value)
        )
