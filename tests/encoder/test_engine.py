"""The one-pass engine: order, batches, cancellation and failures, with a runner that counts."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import AlreadyExistsError, InvalidArgumentError
from headway.core.infer import InferOutput, InferRequest, InferSequence
from headway.encoder.engine import EncoderEngine
from headway.encoder.in_flight_batch import InFlightBatch
from headway.encoder.limits import EncoderLimits


class Runner:
    """A sequence's vector is its first token and its length."""

    def __init__(self) -> None:
        self.batches: list[list[InferSequence]] = []
        self.fault: Exception | None = None

    def wait(self, since_s: float) -> None:
        self.waiting_since_s = since_s

    @property
    def free_s(self) -> float:
        return -math.inf

    def duration_s(self, sequences: Sequence[InferSequence]) -> float:
        return 0.0

    def predict(self, sequences: Sequence[InferSequence], *, ready_s: float) -> float:
        return ready_s

    def start(self, sequences: Sequence[InferSequence], *, ready_s: float) -> InFlightBatch:
        return InFlightBatch(finish=lambda: self.execute(sequences))

    def execute(self, sequences: Sequence[InferSequence]) -> list[bytes]:
        self.batches.append(list(sequences))
        if self.fault is not None:
            raise self.fault
        return [vector_of(sequence) for sequence in sequences]


def vector_of(sequence: InferSequence) -> bytes:
    return bytes([sequence.token_ids[0], len(sequence.token_ids)])


def make(**changes: int) -> tuple[EncoderEngine, Runner]:
    usual = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 10,
        "max_model_len": 16,
        "vocab_size": 100,
        "num_token_types": 2,
    }
    runner = Runner()
    return EncoderEngine(EncoderLimits(**(usual | changes)), runner=runner, clock=lambda: 0.0), runner


def request(request_id: str, *lengths: int, first: int = 1) -> InferRequest:
    sequences = tuple(InferSequence(token_ids=(first + i,) * length) for i, length in enumerate(lengths))
    return InferRequest(request_id=request_id, model="m", sequences=sequences)


def run(engine: EncoderEngine) -> list[InferOutput]:
    outputs: list[InferOutput] = []
    while engine.has_work:
        outputs += engine.step()
    return outputs


def test_a_step_takes_what_waits_up_to_its_tokens_and_sequences() -> None:
    engine, runner = make()
    engine.submit(request("a", 3, 3))
    engine.submit(request("b", 3, 3, 1))
    engine.submit(request("c", 1, 1, 1, 1, 1))
    assert [output.request_id for output in engine.step()] == ["a"]
    assert [output.request_id for output in engine.step()] == ["b"]
    assert [output.request_id for output in engine.step()] == ["c"]
    lengths = [[len(sequence.token_ids) for sequence in batch] for batch in runner.batches]
    assert lengths == [[3, 3, 3], [3, 1, 1, 1], [1, 1, 1]]


def test_a_sequence_longer_than_the_budget_has_a_step_of_its_own() -> None:
    engine, runner = make()
    engine.submit(request("a", 2, 16, 2))
    run(engine)
    assert [len(batch) for batch in runner.batches] == [1, 1, 1]


def test_a_cancelled_request_is_not_computed_and_the_others_are() -> None:
    engine, runner = make(max_num_seqs=1)
    engine.submit(request("a", 2, 2, first=10))
    engine.submit(request("b", 2, first=20))
    engine.step()
    assert engine.cancel("a")
    assert not engine.cancel("a")
    assert [output.request_id for output in run(engine)] == ["b"]
    assert [batch[0].token_ids[0] for batch in runner.batches] == [10, 20]
    assert engine.stats().num_pending_tokens == 0


def test_a_failed_step_changes_nothing_and_to_recover_ends_everything() -> None:
    engine, runner = make()
    engine.submit(request("a", 2))
    runner.fault = RuntimeError("broken")
    with pytest.raises(RuntimeError):
        engine.step()
    assert engine.has_work
    assert [(output.request_id, output.error) for output in engine.recover("sorry")] == [("a", "sorry")]
    assert not engine.has_work


def test_stats_count_requests_and_tokens() -> None:
    engine, _ = make(max_num_seqs=2)
    engine.submit(request("a", 2, 2, 2))
    engine.submit(request("b", 5))
    before = engine.stats()
    assert (before.num_running, before.num_waiting, before.num_pending_tokens) == (1, 1, 11)
    engine.step()
    after = engine.stats()
    assert (after.num_running, after.num_waiting, after.num_pending_tokens, after.num_tokens) == (2, 0, 7, 4)


@pytest.mark.parametrize(
    ("sequences", "named"),
    [
        ((), "sequences"),
        ((InferSequence(token_ids=()),), "sequences[0]"),
        ((InferSequence(token_ids=(1,) * 17),), "sequences[0]"),
        ((InferSequence(token_ids=(1,)), InferSequence(token_ids=(100,))), "sequences[1]"),
        ((InferSequence(token_ids=(1, 2), token_type_ids=(0,)),), "sequences[0]"),
        ((InferSequence(token_ids=(1,), token_type_ids=(2,)),), "sequences[0]"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(sequences: tuple[InferSequence, ...], named: str) -> None:
    engine, _ = make()
    with pytest.raises(InvalidArgumentError) as caught:
        engine.submit(InferRequest(request_id="a", model="m", sequences=sequences))
    assert caught.value.field == named
    assert not engine.has_work


def test_a_request_id_runs_once_at_a_time() -> None:
    engine, _ = make()
    engine.submit(request("a", 1))
    with pytest.raises(AlreadyExistsError):
        engine.submit(request("a", 1))


@given(st.lists(st.lists(st.integers(1, 16), min_size=1, max_size=6), min_size=1, max_size=8), st.data())
def test_every_request_gets_its_own_vectors_in_order(lengths: list[list[int]], data: st.DataObject) -> None:
    engine, runner = make()
    requests = [request(str(i), *each, first=10 * i) for i, each in enumerate(lengths)]
    outputs: list[InferOutput] = []
    for each in requests:
        engine.submit(each)
        if data.draw(st.booleans()):
            outputs += engine.step()
    outputs += run(engine)
    assert [output.request_id for output in outputs] == [each.request_id for each in requests]
    for output, each in zip(outputs, requests, strict=True):
        assert output.vectors == tuple(map(vector_of, each.sequences))
    for batch in runner.batches:
        assert len(batch) <= 4
        assert len(batch) == 1 or sum(len(sequence.token_ids) for sequence in batch) <= 10
