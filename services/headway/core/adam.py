"""The program of Adam's update of one parameter, to be timed."""

import json

from headway.core.program import REFERENCE, Instruction, Program, Value

UPDATE_BYTES = 4 * 7
"""Moved for each number: parameter, gradient and two moments are read; all but the gradient are written."""

_STATE = 4
_OPTIONS = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}


def adam_program(num_elements: int) -> Program:
    """Makes Adam's update of `num_elements` elements, in float32, in which parameters are updated whatever they are
    computed in. None of its data is in a cache.
    """
    state = Value(shape=(num_elements,), stride=(1,), dtype="float32", is_weight=True)
    step = Value(shape=(), stride=(), dtype="float32")
    lists = [[{REFERENCE: i}] for i in range(_STATE)]
    arguments = {
        "args": [*lists, [], [{REFERENCE: _STATE}]],
        "kwargs": {**_OPTIONS, "amsgrad": False, "maximize": False},
    }
    update = Instruction(target="aten._fused_adam_.default", arguments=json.dumps(arguments, separators=(",", ":")))
    return Program(inputs=(*[state] * _STATE, step), instructions=(update,))
