import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from headway.engine.batch import StepBatch
from headway.runner.step_message import (
    FRAME_BYTES,
    NO_COPIES,
    BlockCopies,
    ModelInput,
    StepKind,
    StepMessage,
    decode,
    encode,
    rest_bytes,
)

WORDS = st.integers(0, 2**31 - 1)


def words(*, min_size: int = 0) -> st.SearchStrategy[NDArray[np.int32]]:
    return st.integers(min_size, 2000).flatmap(lambda size: arrays(np.int32, size, elements=WORDS, fill=WORDS))


def pairs() -> st.SearchStrategy[NDArray[np.int32]]:
    return st.integers(0, 50).flatmap(lambda size: arrays(np.int32, (size, 2), elements=WORDS))


MODEL_INPUT = st.builds(
    ModelInput,
    token_ids=words(),
    first_positions=words(min_size=1),
    counts=words(min_size=1),
    blocks=words(),
    sampled_rows=words(),
    scored_rows=words(),
    on_scratch=st.booleans(),
)
MESSAGES = st.builds(
    StepMessage,
    kind=st.sampled_from(StepKind),
    copies=st.builds(BlockCopies, out=pairs(), into=pairs(), within=pairs()),
    model_input=st.none() | MODEL_INPUT,
    num_scratch_blocks=WORDS,
)


def send(message: StepMessage) -> tuple[StepMessage, int]:
    """What arrives, and how many bytes of it beside the frame."""
    # A frame is used again and again.
    frame = np.full(FRAME_BYTES, 77, np.uint8)
    rest = encode(message, frame)
    assert rest_bytes(frame) == (0 if rest is None else rest.nbytes)
    return decode(frame, rest), rest_bytes(frame)


def assert_equal(found: object, expected: object) -> None:
    if isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, StepMessage | ModelInput | BlockCopies):
        assert type(found) is type(expected)
        for name in expected.__slots__:
            assert_equal(getattr(found, name), getattr(expected, name))
    else:
        assert found == expected


@given(MESSAGES)
def test_a_message_arrives_as_it_was_sent(message):
    found, _ = send(message)
    assert_equal(found, message)


@pytest.mark.parametrize(("num_tokens", "num_rest_bytes"), [(4096 - 24 - 2, 0), (4096 - 24 - 1, 4), (10_000, 23_720)])
def test_what_does_not_fit_in_the_frame_follows_it(num_tokens, num_rest_bytes):
    one, none = np.ones(1, np.int32), np.zeros(0, np.int32)
    model_input = ModelInput(np.arange(num_tokens, dtype=np.int32), one, one, none, none, none)
    found, rest = send(StepMessage(StepKind.STEP, model_input=model_input))
    assert rest == num_rest_bytes
    assert_equal(found.model_input, model_input)


def test_copies_keep_the_batchs_order():
    batch = StepBatch([], 0, swap_out=[(9, 1), (3, 2)], block_copies=[(5, 6)])
    copies = BlockCopies.of(batch)
    assert copies.out.tolist() == [[9, 1], [3, 2]]
    assert copies.into.tolist() == []
    assert copies.within.tolist() == [[5, 6]]


def test_most_batches_copy_nothing():
    assert BlockCopies.of(StepBatch([], 0)) is NO_COPIES
