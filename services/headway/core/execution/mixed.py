"""A training step in mixed precision: what a program that was captured in float32 does with bfloat16 weights. Pure.

Products, convolutions and attention compute in bfloat16; norms, softmax and losses in float32; all else in the widest
dtype that it is given, as with torch.autocast. Only parameters are cast beforehand, whose float32 masters the optimizer
keeps. Where dtypes meet, the program casts, each value once, beside the operator that makes it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headway.core.execution.execution import StageSpec
from headway.core.program import REFERENCE, Instruction, Program, Value

NARROW, WIDE = "bfloat16", "float32"
_MARK = ".as-"
_ATTENTION = "_scaled_dot_product_"
_NARROW = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "linear", "addmv", "mv", "dot")
_WIDE = (
    "_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data",
    "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward",
    "mse_loss", "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_backward", "binary_cross_entropy_with_logits",
    "native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward",
    "native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit_functional",
    "pow", "exp", "log", "log1p", "logsumexp", "rsqrt", "reciprocal", "mean", "var", "var_mean", "cumsum", "prod",
)  # fmt: skip


def in_bfloat16(program: Program) -> Program:
    """Casts a whole captured step. Results keep their numbers' meaning: the loss is float32, a parameter's gradient is
    of the dtype that its last operator gives."""
    return _Caster(program).cast()


def with_casts(stages: Sequence[StageSpec], program: Program) -> tuple[StageSpec, ...]:
    """Stages of the float32 step with the casts of their operators."""
    casts: dict[str, list[str]] = {}
    for name in program.positions():
        if _MARK in name:
            casts.setdefault(name.partition(_MARK)[0], []).append(name)

    def filled(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(each for name in names for each in (name, *casts.get(name, ())))

    return tuple(replace(s, forward=filled(s.forward), backward=filled(s.backward)) for s in stages)


def is_cast(instruction: Instruction) -> bool:
    """Whether it is none of the captured step's, and casts what it reads."""
    return _MARK in instruction.name


@dataclass
class _Caster:
    program: Program
    instructions: list[Instruction] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    dtypes: dict[int, str] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    casts: dict[tuple[int, str], int] = field(default_factory=dict)

    def cast(self) -> Program:
        count = len(self.program.inputs)
        inputs = [
            replace(value, dtype=NARROW) if name in self.program.gradients and value.dtype == WIDE else value
            for name, value in zip(self.program.names, self.program.inputs, strict=True)
        ]
        self.numbers = {number: number for number in range(count)}
        self.dtypes = {number: value.dtype for number, value in enumerate(inputs)}
        for at, instruction in enumerate(self.program.instructions):
            self._add(count + at, instruction)
        return replace(
            self.program,
            inputs=tuple(inputs),
            instructions=tuple(self.instructions),
            results=tuple(self.numbers[number] for number in self.program.results),
            gradients={name: self.numbers[number] for name, number in self.program.gradients.items()},
        )

    def _add(self, number: int, instruction: Instruction) -> None:
        """Appends an instruction, with the casts of what it reads before it."""
        arguments = json.loads(instruction.arguments)
        read = instruction.references()
        wanted = self._wanted(instruction, read)
        first = read[0] if read else -1
        for at, given in enumerate(arguments["args"]):
            if not (_is_in_place(instruction) and at == 0):
                arguments["args"][at] = self._read(given, wanted, instruction)
        arguments["args"] = [_renumbered(each, self.numbers) for each in arguments["args"]]
        arguments["kwargs"] = _renumbered(self._read(arguments["kwargs"], wanted, instruction), self.numbers)
        results = tuple(self._result(value, at, wanted, instruction) for at, value in enumerate(instruction.results))
        text = json.dumps(arguments, separators=(",", ":"))
        self._append(number, replace(instruction, arguments=text, results=results))
        is_view = instruction.is_view and read
        self.owners[number] = self.owners.get(first, "") if is_view else instruction.name

    def _wanted(self, instruction: Instruction, read: Sequence[int]) -> str:
        """The dtype that an operator computes in; empty where it takes what it gets."""
        name = _short(instruction.target)
        given = [dtype for dtype in (self.dtypes[number] for number in read) if dtype in (NARROW, WIDE)]
        if instruction.is_view or not given:
            return ""
        if name in _NARROW or name.startswith(_ATTENTION):
            return NARROW
        if name in _WIDE:
            return WIDE
        if _is_in_place(instruction):
            return self.dtypes[read[0]] if self.dtypes[read[0]] in (NARROW, WIDE) else ""
        return WIDE if WIDE in given else NARROW

    def _read(self, argument: Any, wanted: str, reader: Instruction) -> Any:
        """The argument with values of the other dtype cast, by old numbers or, where they are cast, by marks."""
        if isinstance(argument, list):
            return [self._read(item, wanted, reader) for item in argument]
        if isinstance(argument, dict) and REFERENCE in argument:
            number = argument[REFERENCE]
            if not wanted or self.dtypes[number] not in (NARROW, WIDE) or self.dtypes[number] == wanted:
                return argument
            return argument if self._is_statistic(number) else {"cast": self._cast(number, wanted, reader)}
        if isinstance(argument, dict):
            return {key: self._read(item, wanted, reader) for key, item in argument.items()}
        return argument

    def _is_statistic(self, number: int) -> bool:
        """Whether it is the logarithm of the sums that attention keeps for its backward pass, always in float32."""
        at = number - len(self.program.inputs)
        if at < 0 or self.program.instructions[at].target != "getitem":
            return False
        maker = self.program.references(at)[0] - len(self.program.inputs)
        picked = json.loads(self.program.instructions[at].arguments)["args"][1]
        return picked > 0 and _is_attention_forward(self.program.instructions[maker])

    def _cast(self, number: int, dtype: str, reader: Instruction) -> int:
        """The new number of a value's cast, which is made where it is first wanted."""
        if (number, dtype) not in self.casts:
            owner = self.owners.get(number) or reader.name
            value = replace(self.program.value(number), dtype=dtype, is_weight=False)
            arguments = {"args": [{REFERENCE: self.numbers[number]}], "kwargs": {"dtype": {"dtype": dtype}}}
            self.casts[number, dtype] = len(self.program.inputs) + len(self.instructions)
            self.instructions.append(
                Instruction(
                    target="aten._to_copy.default",
                    arguments=json.dumps(arguments, separators=(",", ":")),
                    results=(value,),
                    name=f"{owner}{_MARK}{dtype}-{number}",
                )
            )
        return self.casts[number, dtype]

    def _result(self, value: Value, at: int, wanted: str, instruction: Instruction) -> Value:
        if value.dtype != WIDE:
            return value
        if instruction.is_view:
            read = instruction.references()
            if instruction.target == "getitem":
                picked = json.loads(instruction.arguments)["args"][1]
                maker = self.program.instructions[read[0] - len(self.program.inputs)]
                if picked > 0 and _is_attention_forward(maker):
                    return value
            return replace(value, dtype=self.dtypes[read[0]]) if read else value
        if "dtype" in json.loads(instruction.arguments)["kwargs"]:
            return value
        is_kept = at > 0 and _is_attention_forward(instruction)
        return value if is_kept or not wanted else replace(value, dtype=wanted)

    def _append(self, number: int, instruction: Instruction) -> None:
        self.numbers[number] = len(self.program.inputs) + len(self.instructions)
        self.dtypes[number] = instruction.results[0].dtype if instruction.results else ""
        self.instructions.append(instruction)


def _renumbered(argument: Any, numbers: dict[int, int]) -> Any:
    if isinstance(argument, list):
        return [_renumbered(item, numbers) for item in argument]
    if isinstance(argument, dict):
        if REFERENCE in argument:
            return {REFERENCE: numbers[argument[REFERENCE]]}
        if "cast" in argument:
            return {REFERENCE: argument["cast"]}
        return {key: _renumbered(item, numbers) for key, item in argument.items()}
    return argument


def _short(target: str) -> str:
    return target.split(".")[1] if target.count(".") else target


def _is_in_place(instruction: Instruction) -> bool:
    return _short(instruction.target).endswith("_")


def _is_attention_forward(instruction: Instruction) -> bool:
    name = _short(instruction.target)
    return name.startswith(_ATTENTION) and not name.endswith("_backward")
