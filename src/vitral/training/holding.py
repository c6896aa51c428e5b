"""What one rank holds of a model's weights, and moves: all of them, unless the ranks share them out."""

from collections.abc import Mapping

from torch import Tensor, nn

from vitral.core.guarded import GuardedFolder
from vitral.model import Transformer


class Holding:
    """All weights of a model; and the interface of `vitral.training.sharding.Shards`, where each rank holds some rows.

    Attributes:
        model: the model that computes a step.
        parameters: what this rank moves of each parameter, by the parameter's name: some of its rows, or all.
        is_whole: whether these are all.
        distinct: number of ranks that hold different parts; rank r holds the same as rank r mod `distinct`.
    """

    is_whole, distinct = True, 1

    def __init__(self, model: Transformer) -> None:
        """Hold the whole model."""
        self.model = model
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())

    def begin(self, parameter: nn.Parameter) -> int:
        """The number of its first row among those of the whole parameter."""
        return 0

    def whole(self, parameter: nn.Parameter, part: Tensor) -> Tensor:
        """A tensor like the whole parameter, of which every rank has the part that is like its own."""
        return part

    def own(self, name: str, whole: Tensor) -> Tensor:
        """This rank's part of a tensor that is like a whole parameter; any other tensor as it is."""
        return whole

    def complete(self) -> Transformer:
        """The model with all its weights, on rank 0."""
        return self.model

    def agreed(self, line: str | None) -> str | None:
        """What the first rank that has something to say says of its part."""
        return line

    def order(self, what: str) -> None:
        """Tell the other ranks to do with their parts what rank 0 is about to do with its own."""

    def weights(self) -> Mapping[str, Tensor]:
        """What a checkpoint contains of this rank's weights."""
        return self.model.state_dict()

    def try_folder(self, steps: GuardedFolder, shown: str = "") -> None:
        """Find out whether every rank that will write into the folder of checkpoints can.

        Args:
            steps: the folder.
            shown: name of a file in it that rank 0 has written, for the others.

        Raises:
            RankLost: one cannot.
        """
