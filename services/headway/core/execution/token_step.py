"""What of a captured step of a causal language model has tokens, what follows from none, where tokens meet. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.execution.parts import SEED, draws
from headway.core.program import REFERENCE, Instruction, Program

ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"
ATTENTION_BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
NLL, NLL_BACKWARD = "aten.nll_loss_forward.default", "aten.nll_loss_backward.default"
TOKENS = 2
"""The dim of an attention's operands that has the tokens."""
_MEAN = 1
_TARGETS = "targets"


@dataclass(frozen=True, kw_only=True)
class TokenStep:
    """A step, and the same one captured with as many tokens as slices have, wherever these are.

    Attributes:
        parts: by their number of tokens.
        slices: tokens of each.
    """

    whole: Program
    parts: Mapping[int, Program]
    slices: Sequence[int]

    def check(self) -> None:
        """InvalidArgumentError or FailedPreconditionError, as `slice_step` says."""
        total = sum(self.slices)
        sizes = {self.whole.inputs[number].shape[dim] for number, dim in self._fed_inputs.items()}
        if sizes != {total} or len(self.slices) < 2 or min(self.slices) < 1:
            has = ", ".join(map(str, sorted(sizes))) or "no"
            raise InvalidArgumentError(
                f"Slices of {', '.join(map(str, self.slices))} tokens are no sequence of {has} tokens.",
                hint="Make the plan for the model with this seq.",
                field="plan",
            )
        for length, part in self.parts.items():
            for one, other in zip(self.whole.instructions, part.instructions, strict=False):
                if (one.name, one.target) != (other.name, other.target) or not _are_cut(one, other, total, length):
                    raise not_cut(one.name, f"it is another computation for {length} tokens than for {total}")
            if len(part.instructions) != len(self.whole.instructions):
                raise not_cut("its end", f"it is another computation for {length} tokens than for {total}")
        if not self.attentions:
            raise not_cut("", "it has no attention that workers know")

    @cached_property
    def firsts(self) -> list[int]:
        """Tokens before each slice."""
        return [0, *accumulate(self.slices)]

    @cached_property
    def begin(self) -> int:
        """The position where the backward pass begins."""
        seeds = (at for at, each in enumerate(self.whole.instructions) if each.target == SEED)
        loss = [self.whole.results[0]]
        found = next((at for at in seeds if self.whole.references(at) == loss), None)
        if found is None:
            raise InvalidArgumentError(
                "The captured step has no gradient of its loss.", hint="Capture it for training.", field="loss"
            )
        return found

    @cached_property
    def _fed_inputs(self) -> dict[int, int]:
        """Inputs that have tokens, with the dim."""
        shorter = next(iter(self.parts.values()))
        found = {}
        for number, (one, other) in enumerate(zip(self.whole.inputs, shorter.inputs, strict=True)):
            dims = [dim for dim, sizes in enumerate(zip(one.shape, other.shape, strict=True)) if sizes[0] != sizes[1]]
            if dims:
                found[number] = dims[0]
        return found

    @cached_property
    def fixed_inputs(self) -> list[int]:
        """Inputs that are neither tokens nor trained."""
        names = self.whole.names
        return [
            number
            for number in range(len(names))
            if number not in self._fed_inputs and names[number] not in self.whole.gradients
        ]

    @cached_property
    def tokenless(self) -> frozenset[int]:
        """Positions of what follows from no token and no weight. What others write onto is none of it: each slice
        makes that for itself."""
        instructions = self.whole.instructions
        banned = {at for at, each in enumerate(instructions) if draws(each.target)}
        while True:
            found: set[int] = set()
            for at in range(len(instructions)):
                read = self.whole.references(at)
                if at not in banned and all(self._is_tokenless(number, found) for number in read):
                    found.add(at)
            written = {self.base(self.whole.references(at)[0]) for at in self._in_place if at not in found}
            if not written & found:
                return frozenset(found)
            banned |= written & found

    def _is_tokenless(self, number: int, found: set[int]) -> bool:
        at = number - len(self.whole.inputs)
        return at in found if at >= 0 else number in self.fixed_inputs

    @cached_property
    def _in_place(self) -> list[int]:
        targets = enumerate(each.target for each in self.whole.instructions)
        return [at for at, target in targets if target.rpartition(".")[0].endswith("_")]

    def base(self, number: int) -> int:
        """The position of the operator whose memory a value is; below 0 for an input."""
        at = number - len(self.whole.inputs)
        while at >= 0 and self.whole.instructions[at].is_view and self.whole.references(at):
            at = self.whole.references(at)[0] - len(self.whole.inputs)
        return at

    @cached_property
    def attentions(self) -> dict[tuple[int, int], int]:
        """Positions by the numbers of their keys and values."""
        found = {}
        for at, instruction in enumerate(self.whole.instructions):
            if instruction.target == ATTENTION:
                query, keys, values = self.whole.references(at)[:3]
                shapes = {self.whole.value(number).shape[TOKENS] for number in (query, keys, values)}
                given = json.loads(instruction.arguments)
                if shapes != {sum(self.slices)} or given["args"][3:5] != [0.0, True]:
                    raise not_cut(instruction.name, "it is no attention of a sequence to its own earlier tokens")
                found[keys, values] = at
            elif "scaled_dot_product" in instruction.target and instruction.target != ATTENTION_BACKWARD:
                raise not_cut(instruction.name, f"{instruction.target} is no attention that workers know")
        return found

    @cached_property
    def likelihood(self) -> tuple[int, int] | None:
        """Scores and targets where the loss is the mean of their negative log-likelihoods, which is taken as a sum: so
        a slice without any target has a loss too. None for another loss, or where targets are no input of that name, so
        that nobody counts them."""
        loss = self.whole.instructions[self.whole.results[0] - len(self.whole.inputs)]
        maker = self.whole.instructions[self.base(self.whole.results[0])]
        if maker.target != NLL or json.loads(loss.arguments)["args"][1:] != [0]:
            return None
        given = json.loads(maker.arguments)["args"]
        if given[2:4] != [None, _MEAN] or self._input_of(given[1][REFERENCE]) != _TARGETS:
            return None
        return given[0][REFERENCE], given[1][REFERENCE]

    def _input_of(self, number: int) -> str:
        """The name of the input that a value is a view of; empty where it is none."""
        count = len(self.whole.inputs)
        while number >= count and self.whole.instructions[number - count].is_view:
            number = self.whole.references(number - count)[0]
        return self.whole.names[number] if number < count else ""

    def operator_behind(self, at: int) -> str:
        """The first operator that reads what an instruction reads: itself, or behind views."""
        seen = {len(self.whole.inputs) + at}
        while self.whole.instructions[at].is_view:
            at += 1
            if seen.intersection(self.whole.references(at)):
                seen.add(len(self.whole.inputs) + at)
            else:
                continue
            if not self.whole.instructions[at].is_view:
                break
        return self.whole.instructions[at].name

    def maker_of(self, number: int) -> Instruction:
        return self.whole.instructions[number - len(self.whole.inputs)]


def _are_cut(one: Instruction, other: Instruction, total: int, length: int) -> bool:
    """Whether results differ by their number of tokens only."""
    pairs = zip(_shapes(one), _shapes(other), strict=True)
    return all(
        len(whole) == len(part) and all(a == b or a * length == b * total for a, b in zip(whole, part, strict=True))
        for whole, part in pairs
    )


def _shapes(instruction: Instruction) -> Iterator[tuple[int, ...]]:
    return (value.shape for value in instruction.results)


def not_cut(operator: str, why: str) -> FailedPreconditionError:
    """Args:
    operator: where; empty for the whole model.
    """
    where = f"{operator}: " if operator else ""
    return FailedPreconditionError(
        f"The model cannot be cut along its tokens: {where}{why}.",
        hint="Plan with `headway plan train --method pp-dp`, whose micro-batches are whole.",
        field="plan",
    )
