"""Programs timed by the real bench process, and how it gives way."""

import asyncio
import json

import pytest
import torch

from headway.backends.inputs import make_input
from headway.core.adam import adam_program
from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.program import Instruction, Program, Value
from headway.core.timing import TimingOrder
from headway.worker.bench.bench import Bench
from headway.worker.measuring import Measuring

_CPU = torch.device("cpu")
_HARDWARE = Hardware(device="cpu", name="test", num_threads=1, memory_bytes=1 << 30)


def program(target: str, *shapes: tuple[int, ...], extra: tuple[object, ...] = ()) -> Program:
    """One call with tensors of these shapes."""
    inputs = tuple(
        Value(shape=shape, stride=torch.empty(shape, device="meta").stride(), dtype="float32") for shape in shapes
    )
    arguments = {"args": [*({"value": i} for i in range(len(inputs))), *extra], "kwargs": {}}
    return Program(inputs=inputs, instructions=(Instruction(target=target, arguments=json.dumps(arguments)),))


PRODUCT = program("aten.mm.default", (64, 64), (64, 64))
LONG = program("aten.mm.default", (2000, 2000), (2000, 2000))


async def test_each_program_is_timed_in_order_and_faults_are_told() -> None:
    measuring = Measuring(_HARDWARE, idle_s=lambda: None, quiet_s=5.0)
    mismatched = program("aten.mm.default", (2, 3), (2, 3))
    unknown = program("mylib.unheard_of.default", (2,))
    no_operator = program("load_library", extra=("/tmp/evil.so",))
    opaque = program("aten.relu.default", extra=({"unknown": "Thing"},))
    huge = program("aten.mm.default", (1 << 15, 1 << 15), (1 << 15, 1 << 15))
    programs = [PRODUCT, mismatched, unknown, opaque, huge, adam_program(1000), no_operator]
    timings = [timing async for timing in measuring.measure(programs, share=1.0)]
    assert [timing.number for timing in timings] == list(range(7))
    assert all(timings[i].seconds > 0 and timings[i].num_repeats > 0 and not timings[i].fault for i in (0, 5))
    faults = [timings[number].fault for number in (1, 2, 3, 4, 6)]
    told = ("RuntimeError", "mylib.unheard_of", "Thing", "GiB of memory", "load_library is not known")
    for fault, words in zip(faults, told, strict=True):
        assert words in fault


async def test_it_gives_way_to_a_request_at_once_and_what_was_timed_stands() -> None:
    idle_s: list[float] = [100.0]
    measuring = Measuring(_HARDWARE, idle_s=lambda: idle_s[0], quiet_s=5.0)
    timings = measuring.measure([PRODUCT, *[LONG] * 50], share=1.0)
    assert (await anext(timings)).seconds > 0
    idle_s[0] = 0.0
    with pytest.raises(FailedPreconditionError, match="served requests"):
        await anext(timings)
    with pytest.raises(FailedPreconditionError, match="served requests"):
        await anext(measuring.measure([PRODUCT], share=1.0))


async def test_one_caller_at_a_time() -> None:
    measuring = Measuring(_HARDWARE, idle_s=lambda: None, quiet_s=5.0)
    first = measuring.measure([PRODUCT], share=1.0)
    task = asyncio.ensure_future(anext(first))
    await asyncio.sleep(0)
    with pytest.raises(FailedPreconditionError, match="being measured"):
        await anext(measuring.measure([PRODUCT], share=1.0))
    await task
    await first.aclose()


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_a_share_is_above_nothing_and_at_most_all(share: float) -> None:
    with pytest.raises(InvalidArgumentError, match="share"):
        TimingOrder(programs=(), memory_bytes=1, share=share)


def test_inputs_have_their_strides_their_bounds_and_are_the_same_every_time() -> None:
    values = [
        Value(shape=(3, 4), stride=(1, 3), dtype="float32"),
        Value(shape=(2, 5), stride=(0, 1), dtype="bfloat16"),
        Value(shape=(1000,), stride=(1,), dtype="int64", bound=7),
        Value(shape=(10,), stride=(1,), dtype="bool"),
        Value(shape=(0, 3), stride=(3, 1), dtype="float32"),
    ]
    made = [[make_input(v, device=_CPU, generator=torch.Generator().manual_seed(1)) for v in values] for _ in range(2)]
    for value, tensor, again in zip(values, *made, strict=True):
        assert (tuple(tensor.shape), str(tensor.dtype)) == (value.shape, f"torch.{value.dtype}")
        assert torch.equal(tensor, again)
    assert made[0][0].stride() == (1, 3)
    assert (int(made[0][2].min()), int(made[0][2].max())) == (0, 6)


def test_memory_is_that_of_inputs_and_of_what_lives_at_a_time() -> None:
    """Two chained additions of 100 floats: one input, and two results at once."""
    value = Value(shape=(100,), stride=(1,), dtype="float32")
    steps = tuple(
        Instruction(
            target="aten.add.Tensor",
            arguments=json.dumps({"args": [{"value": i}, {"value": i}], "kwargs": {}}),
            results=(value,),
        )
        for i in range(3)
    )
    chained = Program(inputs=(value,), instructions=steps)
    assert chained.peak_bytes == 3 * 400
    needs = Bench(_CPU, memory_bytes=1199).time(chained, number=0)
    assert needs.fault.startswith("it takes 1.2 KiB")
    assert not Bench(_CPU, memory_bytes=1200).time(chained, number=0).fault
