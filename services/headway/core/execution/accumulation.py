"""Parts that add gradients to their sums where they make them. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headway.core.execution.strides import dense_stride
from headway.core.program import REFERENCE, Instruction, Program, Value, arguments_text

_PRODUCT = "aten.mm.default"
_TURNED = "aten.t.default"
_TURNING = (_TURNED, "aten.transpose.int", "aten.permute.default")
_ADD, _ADD_PRODUCT = "aten.add_.Tensor", "aten.addmm_.default"


def accumulating(program: Program, sums: Sequence[str]) -> Program:
    """The program with as many further inputs, in which it adds up its last results, which are gradients, instead of
    giving them.

    A gradient is given up as soon as it is there; where it is a product that nothing else reads, the call that makes
    it adds it too.

    Args:
        sums: the dtype of each gradient's sum, in order.
    """
    return _Accumulating(program, sums).made()


@dataclass
class _Accumulating:
    program: Program
    sums: Sequence[str]
    inputs: tuple[Value, ...] = ()
    instructions: list[Instruction] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    """Of each value of the program what it is in the new one."""

    def made(self) -> Program:
        program, count = self.program, len(self.program.inputs)
        kept = len(program.results) - len(self.sums)
        sums = [
            Value(shape=value.shape, stride=dense_stride(value.shape, range(len(value.shape), 0, -1)), dtype=dtype)
            for value, dtype in zip(map(program.value, program.results[kept:]), self.sums, strict=True)
        ]
        self.inputs = (*program.inputs, *sums)
        self.numbers = {number: number for number in range(count)}
        pending: dict[int, list[int]] = {}
        for at, number in enumerate(program.results[kept:], start=count):
            pending.setdefault(number, []).append(at)
        products, skipped = self._products(pending)
        for number in range(count):
            self._add(number, pending.pop(number, ()))
        for at, instruction in enumerate(program.instructions):
            if at in products:
                self._add_product(at, *products[at])
            elif at not in skipped:
                self.numbers[count + at] = self._append(instruction.renumbered(self.numbers, name=instruction.name))
                self._add(count + at, pending.get(count + at, ()))
        results = tuple(self.numbers[number] for number in program.results[:kept])
        return Program(inputs=self.inputs, instructions=tuple(self.instructions), results=results)

    def _products(self, pending: dict[int, list[int]]) -> tuple[dict[int, tuple[int, bool]], set[int]]:
        """By position of a product that is only ever added up, its sum, and whether the sum is of the product's
        transpose; and the positions of the views between."""
        program, count = self.program, len(self.program.inputs)
        uses = Counter(number for at in range(len(program.instructions)) for number in program.references(at))
        uses.update(program.results)
        found, skipped = {}, set()
        for number, (own, *others) in pending.items():
            views, at = [], number - count
            while at >= 0 and uses[count + at] == 1 and program.instructions[at].target in _TURNING:
                views.append(at)
                at = program.references(at)[0] - count
            is_product = at >= 0 and uses[count + at] == 1 and program.instructions[at].target == _PRODUCT
            if is_product and not others and program.value(count + at).dtype == self.inputs[own].dtype:
                given, made = program.value(number), program.value(count + at)
                found[at] = own, (given.shape, given.stride) != (made.shape, made.stride)
                skipped.update(views)
        return found, skipped

    def _add(self, number: int, sums: Sequence[int]) -> None:
        for each in sums:
            self._append(_call(_ADD, [each, self.numbers[number]]))

    def _add_product(self, at: int, own: int, is_turned: bool) -> None:  # noqa: FBT001 - of `_products`
        target = own
        if is_turned:
            value = self.inputs[own]
            turned = Value(shape=value.shape[::-1], stride=value.stride[::-1], dtype=value.dtype)
            target = self._append(replace(_call(_TURNED, [own]), results=(turned,), is_view=True))
        factors = [self.numbers[number] for number in self.program.references(at)]
        self._append(_call(_ADD_PRODUCT, [target, *factors]))

    def _append(self, instruction: Instruction) -> int:
        self.instructions.append(instruction)
        return len(self.inputs) + len(self.instructions) - 1


def _call(target: str, operands: Sequence[int]) -> Instruction:
    """A call that changes its first operand, and gives nothing else."""
    arguments = arguments_text({"args": [{REFERENCE: number} for number in operands], "kwargs": {}})
    return Instruction(target=target, arguments=arguments)
