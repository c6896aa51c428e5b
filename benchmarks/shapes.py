"""The measured models, as sizes that every peer can be built from."""

from dataclasses import dataclass, replace

from vitral import presets
from vitral.model import ModelConfig
from vitral.training import RunConfig


@dataclass(frozen=True)
class Shape:
    """A GPT with learned positions, pre-norm, GELU, a feed-forward four times as wide, and a head of its own.

    Attributes:
        vocab: tokens of the vocabulary.
        context: tokens the model sees at once.
        d_model: width of the residual stream.
        layers: number of blocks.
        heads: attention heads.
        batch: windows of a training batch.
        dropout: of the attention weights and of the feed-forward's output.
        init: "pytorch": every layer's own default; "gpt2": N(0, 0.02), and narrower where a block joins the stream.
    """

    vocab: int
    context: int
    d_model: int
    layers: int
    heads: int
    batch: int
    dropout: float = 0.0
    init: str = "pytorch"

    def without_dropout(self) -> "Shape":
        """The same model without dropout."""
        return replace(self, dropout=0.0)

    def model_config(self) -> ModelConfig:
        """The shape as a configuration of Vitral."""
        return ModelConfig.parse(
            {
                "context_length": self.context,
                "d_model": self.d_model,
                "num_layers": self.layers,
                "num_heads": self.heads,
                "dropout": {"weights": self.dropout, "feed_forward": self.dropout},
                "initialisation": self.init,
            }
        )


def shakespeare() -> Shape:
    """The preset `shakespeare`, with the vocabulary used for its parameter count."""
    preset = presets()["shakespeare"]
    config = RunConfig.parse(preset.run)
    model = config.model
    return Shape(
        vocab=preset.vocabulary,
        context=model.context_length,
        d_model=model.d_model,
        layers=model.num_layers,
        heads=model.num_heads,
        batch=config.training.batch_size,
        dropout=model.dropout.weights,
    )


MEDIUM = Shape(vocab=65, context=256, d_model=384, layers=6, heads=6, batch=8)
"""10.7 million parameters: the model that nanoGPT trains on Shakespeare, with a batch for a laptop."""
GPT2 = Shape(vocab=50_304, context=1024, d_model=768, layers=12, heads=12, batch=64)
"""The shapes of GPT-2 with 124 million parameters, its vocabulary a multiple of 128, with a batch for 80 GB."""
TINY = Shape(vocab=31, context=11, d_model=20, layers=2, heads=5, batch=3)
"""For smoke runs."""
