"""The roofline of single operators, against published latencies and the order that time has."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.catalogue import Device, OperatorTime, OperatorWork, built_in_catalogue, operator_time
from headway.core.errors import InvalidArgumentError

DEVICES = st.sampled_from([device for device in built_in_catalogue().devices.values() if "float16" in device.peak])
EXTENTS = st.tuples(*[st.integers(1, 1 << 14)] * 3)


def product(rows: int, columns: int, inner: int, *, count: int = 1) -> OperatorWork:
    elements = rows * columns + rows * inner + inner * columns
    return OperatorWork(
        flops=2.0 * count * rows * columns * inner,
        bytes_moved=2.0 * count * elements,
        dtype="float16",
        extents=(rows, columns, inner),
    )


def elementwise(num_elements: int, *, num_reads: int) -> OperatorWork:
    return OperatorWork(flops=0, bytes_moved=2.0 * num_elements * (num_reads + 1), dtype="float16")


def bert_layer(*, hidden: int, heads: int, tokens: int) -> Iterator[OperatorWork]:
    """What a layer of an encoder launches, in float16: products, softmax, GELU, residuals and norms."""
    pairs, activations = heads * tokens * tokens, tokens * hidden
    yield product(tokens, 3 * hidden, hidden)
    yield product(tokens, tokens, hidden // heads, count=heads)
    yield from (elementwise(pairs, num_reads=1), elementwise(pairs, num_reads=1))
    yield product(tokens, hidden // heads, tokens, count=heads)
    yield product(tokens, hidden, hidden)
    yield product(tokens, 4 * hidden, hidden)
    yield elementwise(4 * activations, num_reads=1)
    yield product(tokens, hidden, 4 * hidden)
    yield from (elementwise(activations, num_reads=reads) for reads in (2, 1, 2, 1))


@pytest.mark.parametrize(
    ("hidden", "layers", "measured_s"), [(2048, 24, 0.151), (2560, 32, 0.238), (4096, 32, 0.395)], ids=str
)
def test_berts_on_a_v100_take_as_long_as_published_within_the_stated_error(
    hidden: int, layers: int, measured_s: float
) -> None:
    """Dissertation table 4.1: one query of 2048 tokens on one V100. The curves were not fitted to it."""
    device = built_in_catalogue().devices["V100-16"]
    layer = [operator_time(work, device) for work in bert_layer(hidden=hidden, heads=32, tokens=2048)]
    head = operator_time(product(2048, 51_200, hidden), device)
    expected_s = layers * sum(part.seconds for part in layer) + head.seconds
    assert abs(expected_s / measured_s - 1) < max(part.relative_error for part in layer)


@settings(deadline=None)
@given(device=DEVICES, extents=EXTENTS, axis=st.integers(0, 2), threads=st.integers(1, 64))
def test_more_work_never_takes_less_time_nor_beats_the_data_sheet(
    device: Device, extents: tuple[int, int, int], axis: int, threads: int
) -> None:
    larger = tuple(2 * extent if axis == number else extent for number, extent in enumerate(extents))
    work = product(*extents)
    time, longer = (operator_time(product(*each), device, num_threads=threads) for each in (extents, larger))
    assert longer.seconds >= time.seconds * (1 - 1e-9)
    assert time.seconds >= work.flops / device.flops("float16", num_threads=threads)
    assert time.seconds >= work.bytes_moved / device.bytes_per_s(num_threads=threads)
    assert time.seconds >= device.practice.launch.value


def test_what_bounds_an_operator_is_told_with_its_error() -> None:
    device = built_in_catalogue().devices["H100"]
    big, thin, tiny = product(8192, 8192, 8192), product(1, 8192, 8192), elementwise(8, num_reads=1)
    bounds = [operator_time(work, device) for work in (big, thin, tiny)]
    assert [each.bound for each in bounds] == ["compute", "memory", "launch"]
    assert all(isinstance(each, OperatorTime) and 0 < each.relative_error < 1 for each in bounds)
    assert {each.provenance.value for each in bounds} == {"estimated"}


def test_what_a_device_does_not_compute_in_is_refused() -> None:
    device = built_in_catalogue().devices["V100-16"]
    with pytest.raises(InvalidArgumentError, match="V100-16 has no rate for bfloat16"):
        operator_time(OperatorWork(flops=1e9, bytes_moved=1e6, dtype="bfloat16", extents=(64, 64, 64)), device)
    for flops in (-1.0, float("nan")):
        with pytest.raises(InvalidArgumentError, match="cannot have"):
            operator_time(OperatorWork(flops=flops, bytes_moved=1, dtype="float16"), device)
