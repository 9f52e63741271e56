"""What another process sends as a program is one, or it is told why not."""

import json
from dataclasses import replace

import pytest

from headway.core.backend import Backend, BackendPlacement, Engine
from headway.core.errors import InvalidArgumentError
from headway.core.program import Instruction, Program, Value
from headway.core.program_check import check_program

VALUE = Value(shape=(4, 4), stride=(4, 1), dtype="float32")


def call(*numbers: object, target: str = "aten.mm.default") -> Instruction:
    arguments = {"args": [{"value": number} for number in numbers], "kwargs": {}}
    return Instruction(target=target, arguments=json.dumps(arguments), results=(VALUE,))


PROGRAM = Program(inputs=(VALUE, VALUE), instructions=(call(0, 1), call(2, 1)), results=(3,))


def test_a_program_passes() -> None:
    check_program(PROGRAM)
    assert PROGRAM.peak_bytes


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"inputs": (), "instructions": ()}, "instructions"),
        ({"inputs": (replace(VALUE, stride=(1,)),)}, "inputs[0].stride"),
        ({"inputs": (replace(VALUE, shape=(-1, 4)),)}, "inputs[0].shape"),
        ({"inputs": (replace(VALUE, shape=(2**40, 2**40)),)}, "inputs[0].shape"),
        (
            {"instructions": (replace(call(0), results=(replace(VALUE, shape=(4,)),)),)},
            "instructions[0].results[0].stride",
        ),
        ({"instructions": (call(2),)}, "instructions[0].arguments"),
        ({"instructions": (call(-1),)}, "instructions[0].arguments"),
        ({"instructions": (call("a"),)}, "instructions[0].arguments"),
        ({"instructions": (call(target="getitem"),)}, "instructions[0].arguments"),
        *(
            ({"instructions": (replace(call(0), arguments=text),)}, "instructions[0].arguments")
            for text in ("", "{", "[]", "{}", '{"args": 1, "kwargs": {}}', "[" * 100_000)
        ),
        ({"results": (4,)}, "results"),
        ({"gradients": {"a": -1}}, "gradients"),
        (
            {"placement": BackendPlacement(engines=(Engine(backend=Backend(name="a"), positions=(2,)),))},
            "placement.engines[0].positions",
        ),
        ({"placement": BackendPlacement(engines=(), constants=(2,))}, "placement.constants"),
    ],
)
def test_what_cannot_be_is_told_by_its_place(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_program(replace(PROGRAM, **{"results": (), **changes}))
    assert caught.value.field == field
