"""Free steps: a quantity that an expression computes, and the derivative of a number with respect to a quantity."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.functional import jvp

from vitral.core.errors import UsageError
from vitral.explanation.expressions import Call, Instead, Reference, Tree, evaluate, references, substituted
from vitral.explanation.formulas.notation import Expression, Fraction, Name, Number, Over, Product, Sum
from vitral.explanation.operations.base import CellNamer, Index, Operation
from vitral.explanation.operations.cells import CellWriter, formula_of, written

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class Compute:
    """The value of an expression.

    Attributes:
        expression: of quantities, which are the inputs in the order of `references`.
        rank: number of axes of the result; axes of size 1 are put before those of the value.
        one_head: whether quantities of heads are matrices in the expression, because there is one head.
        turned: the inputs that the author writes transposed.
        is_turned: whether the author writes the result transposed.
    """

    expression: Tree
    rank: int
    one_head: bool = True
    turned: frozenset[str] = frozenset()
    is_turned: bool = False

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`: quantities are laid out as expressions see them, and the result as the sheet does."""
        seen: dict[Tree, Tree] = {}
        for name, of in zip(references(self.expression), inputs, strict=True):
            made: Tree = Call("without one head", (Reference(of),)) if self.one_head else Reference(of)
            seen[Reference(name)] = Call("transpose", (made,)) if name in self.turned else made
        made = substituted(self.expression, seen)
        made = Call("transpose", (made,)) if self.is_turned else made
        return Call("with axes", (made,), (self.rank,))

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The quantity."""
        return self.computed(inputs)

    def computed(self, inputs: Sequence[Tensor], instead: Instead | None = None) -> Tensor:
        """The quantity, with some functions computed in another way; see `evaluate`."""
        made = evaluate(self.expression, self._seen(inputs), instead)
        made = made.mT if self.is_turned else made
        return made.reshape(*(1,) * (self.rank - made.dim()), *made.shape)

    def formula(self) -> Expression:
        """The expression."""
        return formula_of(self.expression)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """One cell: the rule in names where it is short, then in numbers."""
        writer = CellWriter(self._seen(inputs), namer)
        index = (*index[:-2], index[-1], index[-2]) if self.is_turned else index
        rank = writer.value(self.expression).dim()
        return writer.stages(self.expression, index[len(index) - rank :])

    def _seen(self, inputs: Sequence[Tensor]) -> Values:
        names = references(self.expression)
        return {
            name: as_seen(value, one_head=self.one_head, turned=name in self.turned)
            for name, value in zip(names, inputs, strict=True)
        }


def as_seen(value: Tensor, *, one_head: bool, turned: bool = False) -> Tensor:
    """A quantity as expressions see it: with one head without the axis of heads, and as the author lays it out."""
    value = value[0] if one_head and value.dim() == 3 and len(value) == 1 else value
    return value.mT if turned and value.dim() > 1 else value


@dataclass(frozen=True)
class Link:
    """A quantity on the way from a quantity to a number that depends on it.

    Attributes:
        name: the quantity.
        operation: computes it.
        inputs: names of the operation's inputs.
        derivative: name of the quantity that is the number's derivative with respect to this one, if there is one.
    """

    name: str
    operation: Operation
    inputs: tuple[str, ...]
    derivative: str | None = None


@dataclass(frozen=True)
class Differentiate:
    """The derivative of a number with respect to a quantity, by the chain rule through the computation.

    Attributes:
        of: the number.
        by: the quantity.
        chain: the quantities from `by`, which is not among them, to `of`, in order.
        names: of the inputs.
    """

    of: str
    by: str
    chain: tuple[Link, ...]
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Name the inputs: those of the chain, and the derivatives that are known."""
        inputs = [name for link in self.chain for name in link.inputs]
        known = [link.derivative for link in self.chain if link.derivative]
        object.__setattr__(self, "names", tuple(dict.fromkeys([self.by, *inputs, *known])))

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The derivative, of the shape of `by`."""
        return self._derivatives(dict(zip(self.names, inputs, strict=True)))[self.by]

    def _derivatives(self, values: Values) -> dict[str, Tensor]:
        """The derivatives with respect to `by` and every quantity of the chain."""
        made: dict[str, Tensor] = {self.of: torch.ones_like(_output(self.chain[-1], values))}
        on_the_way = {self.by, *(link.name for link in self.chain)}
        for link in reversed(self.chain):
            if link.derivative is not None:
                made[link.name] = values[link.derivative]
            if link.name not in made:
                continue
            with torch.inference_mode(False), torch.enable_grad():
                leaves = [values[name].clone().requires_grad_(name in on_the_way) for name in link.inputs]
                wanted = [leaf for leaf in leaves if leaf.requires_grad]
                output = link.operation(*leaves)
                above = made[link.name].clone().reshape(output.shape)
                parts = torch.autograd.grad(output, wanted, above, allow_unused=True)
            for leaf, part in zip(wanted, parts, strict=True):
                name = next(n for n, other in zip(link.inputs, leaves, strict=True) if other is leaf)
                if part is not None and (name == self.by or name not in self._known()):
                    made[name] = made[name] + part if name in made else part
        made.setdefault(self.by, torch.zeros_like(values[self.by]))
        return made

    def _known(self) -> set[str]:
        return {link.name for link in self.chain if link.derivative is not None}

    def tree(self, inputs: Sequence[str]) -> None:
        """A derivative has none."""
        return

    def formula(self) -> Expression:
        """The sum over the quantities that are computed from it."""
        terms = []
        for link in self._next():
            above = Name(link.derivative) if link.derivative else _share(self.of, Name(link.name))
            terms.append(Product((above, _share(link.name, written(self.by)))))
        if [link.name for link in self._next()] == [self.of]:
            return _share(self.of, written(self.by))
        return Sum(tuple(Over("cells", term) for term in terms)) if len(terms) > 1 else Over("cells", terms[0])

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The derivative with respect to each cell computed from this one, times that cell's own derivative."""
        values = dict(zip(self.names, inputs, strict=True))
        above = self._derivatives(values)
        terms = [term for link in self._next() for term in self._terms(link, values, above, index)]
        return (Sum(tuple(terms)) if terms else Number(0.0),)

    def _next(self) -> list[Link]:
        return [link for link in self.chain if self.by in link.inputs]

    def _terms(self, link: Link, values: Values, above: Values, index: Index) -> Iterator[Product]:
        with torch.inference_mode(False), torch.enable_grad():
            others = [values[name].clone() for name in link.inputs]
            tangent = torch.zeros_like(values[self.by])
            tangent[index] = 1.0

            def computed(x: Tensor) -> Tensor:
                parts = [x if name == self.by else part for name, part in zip(link.inputs, others, strict=True)]
                return link.operation(*parts)

            slopes = jvp(computed, values[self.by].clone(), tangent)[1]
        assert isinstance(slopes, Tensor)
        if link.name in above:
            upper = above[link.name].reshape(slopes.shape)
            for place in (slopes != 0).nonzero().tolist():
                yield Product((Number(float(upper[tuple(place)])), Number(float(slopes[tuple(place)]))))


def _output(link: Link, values: Values) -> Tensor:
    return link.operation(*(values[name] for name in link.inputs))


def _share(above: str, below: Name) -> Expression:
    return Fraction(Name(f"∂{above}"), Name(f"∂{below.letters}", below.below, below.above))


def chain(of: str, by: str, links: Sequence[Link]) -> tuple[Link, ...]:
    """The quantities between two, both ends of which are names.

    Args:
        of: the number.
        by: the quantity.
        links: all quantities that are computed, in order.

    Raises:
        UsageError: `of` does not depend on `by`, or a quantity between them is a derivative or a choice.
    """
    after = {by}
    for link in links:
        if after & set(link.inputs) and link.name != by:
            after.add(link.name)
    needed, made = {of}, []
    for link in reversed(links):
        if link.name in needed and link.name in after and link.name != by:
            if isinstance(link.operation, Differentiate):
                raise UsageError("grad({of}, {by}): {of} depends on a derivative; only one grad", of=of, by=by)
            made.append(link)
            needed |= set(link.inputs)
    if not made:
        raise UsageError("grad({of}, {by}): {of} does not depend on {by}", of=of, by=by)
    return tuple(reversed(made))


def gradients(tree: Tree) -> Iterator[tuple[tuple[int, ...], str, str]]:
    """Each grad of a tree: its place, the number and the quantity."""

    def walk(node: Tree, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str, str]]:
        match node:
            case Call("grad", (Reference(of), Reference(by))):
                yield path, of, by
            case Call(_, arguments):
                for place, argument in enumerate(arguments):
                    yield from walk(argument, (*path, place))

    yield from walk(tree, ())
