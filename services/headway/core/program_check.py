"""Whether a program that somebody sent is one: what it refers to is there, and each value can be."""

import json
from collections.abc import Iterable
from typing import Any

from headway.core.errors import InvalidArgumentError
from headway.core.program import Instruction, Program, Value

_MAX_ELEMENTS = 2**48


def check_program(program: Program) -> None:
    """Raises InvalidArgumentError naming the first field at fault."""
    num_inputs, num_values = len(program.inputs), len(program.inputs) + len(program.instructions)
    if not num_values:
        raise InvalidArgumentError("The program has neither inputs nor instructions.", field="instructions")
    for i, value in enumerate(program.inputs):
        _check_value(value, f"inputs[{i}]")
    for at, instruction in enumerate(program.instructions):
        field = f"instructions[{at}]"
        _check_arguments(instruction, field)
        _check_numbers(instruction.references(), num_inputs + at, f"{field}.arguments")
        for i, value in enumerate(instruction.results):
            _check_value(value, f"{field}.results[{i}]")
        if instruction.target == "getitem" and not instruction.references():
            raise InvalidArgumentError(f"{field} picks from no value.", field=f"{field}.arguments")
    _check_numbers(program.results, num_values, "results")
    _check_numbers(program.gradients.values(), num_values, "gradients")
    if program.placement is not None:
        for i, engine in enumerate(program.placement.engines):
            _check_numbers(engine.positions, len(program.instructions), f"placement.engines[{i}].positions")
        _check_numbers(program.placement.constants, num_inputs, "placement.constants")


def _check_value(value: Value, field: str) -> None:
    if len(value.shape) != len(value.stride):
        raise InvalidArgumentError(
            f"{field} has {len(value.shape)} dims and {len(value.stride)} strides.", field=f"{field}.stride"
        )
    num_elements = 1
    for size in value.shape:
        num_elements *= max(size, 1)
        if size < 0 or num_elements > _MAX_ELEMENTS:
            raise InvalidArgumentError(f"{field} cannot have the shape {list(value.shape)}.", field=f"{field}.shape")


def _check_arguments(instruction: Instruction, field: str) -> None:
    try:
        given: Any = json.loads(instruction.arguments)
    except (ValueError, RecursionError):
        given = None
    is_call = isinstance(given, dict) and isinstance(given.get("args"), list) and isinstance(given.get("kwargs"), dict)
    if not is_call:
        raise InvalidArgumentError(
            f"{field}.arguments should be JSON with args and kwargs.", field=f"{field}.arguments"
        )


def _check_numbers(numbers: Iterable[Any], end: int, field: str) -> None:
    for number in numbers:
        if not isinstance(number, int) or not 0 <= number < end:
            raise InvalidArgumentError(f"{field} names the value {number!r}; there are {end} by then.", field=field)
