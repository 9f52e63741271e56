"""Steps stay short for a tenant of few sequences beside one of many, who goes on all the same. Time is simulated: a
step takes 3 ms, and 0.33 ms for each token, as where issue 30 found B waiting for steps of 128 of A's sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean

import pytest

from headway.core.request import GenerationRequest, SequenceOutput
from headway.engine.batch import StepBatch, StepResult
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.step_times import StepTimes
from tests.engine.oracle import OracleModel, OracleRunner

MakeRequest = Callable[..., GenerationRequest]
MakeGroup = Callable[..., list[GenerationRequest]]

FIXED_S, TOKEN_S = 0.003, 0.00033


@dataclass
class TimedEngine:
    """An engine whose steps take simulated time.

    Attributes:
        num_tokens: of each request, that have come.
    """

    token_s: float = TOKEN_S
    runs_ahead: bool = False
    now_s: float = 0.0
    num_tokens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = EngineConfig(
            num_blocks=4000, block_size=4, max_model_len=600, max_num_seqs=128, runs_ahead=self.runs_ahead
        )
        self.config, self.model = config, OracleModel()
        self.engine = Engine(config, runner=TimedRunner(self), clock=lambda: self.now_s)

    def step(self) -> list[SequenceOutput]:
        outputs = self.engine.step()
        for output in outputs:
            self.num_tokens[output.request_id] = self.num_tokens.get(output.request_id, 0) + len(output.token_ids)
        return outputs

    def latency_s(self, request: GenerationRequest) -> float:
        """How long a request takes from now on."""
        started_s = self.now_s
        self.engine.submit(request)
        while not any(output.request_id == request.request_id and output.finish_reason for output in self.step()):
            pass
        return self.now_s - started_s

    def rest(self, duration_s: float) -> None:
        """Steps on for a while."""
        until_s = self.now_s + duration_s
        while self.now_s < until_s:
            self.step()

    def flood_tokens(self) -> int:
        return sum(num for request_id, num in self.num_tokens.items() if request_id.startswith("a"))


class TimedRunner(OracleRunner):
    def __init__(self, timed: TimedEngine) -> None:
        super().__init__(timed.model, timed.config)
        self._timed = timed
        self._durations_s: list[float] = []

    def start(self, batch: StepBatch) -> None:
        self._durations_s.append(FIXED_S + self._timed.token_s * batch.num_tokens)
        super().start(batch)

    def finish(self) -> StepResult:
        self._timed.now_s += self._durations_s.pop(0)
        return super().finish()


def flood(timed: TimedEngine, make_group: MakeGroup, *, num_groups: int, n: int) -> None:
    for index in range(num_groups):
        timed.engine.submit_group(make_group(f"a{index}", n, 16, max_tokens=500, tenant="a"))


def latencies_s(timed: TimedEngine, make_request: MakeRequest, *, num: int, think_s: float = 0.01) -> Sequence[float]:
    """Of short requests one after the other, with a pause between two in which the flood goes on."""
    found = []
    for index in range(num):
        found.append(timed.latency_s(make_request(f"b{len(timed.num_tokens)}-{index}", 16, max_tokens=4, tenant="b")))
        timed.rest(think_s)
    return found


@pytest.mark.parametrize(("num_groups", "n"), [(8, 32), (256, 1)])
def test_short_requests_take_less_than_five_times_their_lone_time(
    make_request: MakeRequest, make_group: MakeGroup, num_groups: int, n: int
) -> None:
    """Issue 30, row 10: ten and twenty-five times, and all of it in steps of 128 sequences."""
    timed = TimedEngine()
    alone_s = max(timed.latency_s(make_request(f"b{i}", 16, max_tokens=4, tenant="b")) for i in range(3))
    flood(timed, make_group, num_groups=num_groups, n=n)
    timed.rest(0.2)
    latencies_s(timed, make_request, num=2)  # by now it knows how long steps take
    num_before, started_s = timed.flood_tokens(), timed.now_s
    assert max(latencies_s(timed, make_request, num=10)) < 5 * alone_s
    rate = (timed.flood_tokens() - num_before) / (timed.now_s - started_s)
    alone = 128 / (FIXED_S + 128 * TOKEN_S)
    assert rate > alone / 3, "the flood has collapsed"


def test_all_of_a_flood_goes_on_in_turn(make_request: MakeRequest, make_group: MakeGroup) -> None:
    timed = TimedEngine()
    flood(timed, make_group, num_groups=6, n=16)
    timed.engine.submit(make_request("b", 16, max_tokens=400, tenant="b"))
    timed.rest(0.2)
    before = dict(timed.num_tokens)
    timed.rest(0.4)
    gained = [num - before[request_id] for request_id, num in timed.num_tokens.items() if request_id[0] == "a"]
    assert min(gained) > mean(gained) / 2
    step_s = 0.4 / (timed.num_tokens["b"] - before["b"])
    assert step_s == pytest.approx(2 * (FIXED_S + TOKEN_S), rel=0.2)


@pytest.mark.parametrize("tenants", ["aa", "ab"])
def test_nobody_waits_without_cause(make_request: MakeRequest, make_group: MakeGroup, tenants: str) -> None:
    """One tenant, or steps that take as long whatever they hold."""
    timed = TimedEngine(token_s=TOKEN_S if tenants == "aa" else 0.0)
    flood(timed, make_group, num_groups=4, n=8)
    timed.engine.submit(make_request("b", 16, max_tokens=400, tenant=tenants[1]))
    timed.rest(0.1)
    before = dict(timed.num_tokens)
    for _ in range(5):
        timed.step()
    assert all(num - before[request_id] == 5 for request_id, num in timed.num_tokens.items())


def test_a_flood_beside_nobody_is_held_no_longer_than_a_second(
    make_request: MakeRequest, make_group: MakeGroup
) -> None:
    timed = TimedEngine()
    flood(timed, make_group, num_groups=4, n=16)
    timed.rest(0.2)
    timed.latency_s(make_request("b", 16, max_tokens=4, tenant="b"))
    assert len(timed.step()) < 64
    timed.rest(1.1)
    assert len(timed.step()) == 64


def test_outputs_stay_what_they_are(make_request: MakeRequest, make_group: MakeGroup) -> None:
    """In an engine that runs ahead of its results, where groups in flight are left out too."""
    timed = TimedEngine(runs_ahead=True)
    names = [*(f"a{i}" for i in range(10)), "b0", "b1"]
    requests = [make_request(name, 6, max_tokens=20, tenant=name[0]) for name in names]
    tokens: dict[str, list[int]] = {}
    for request in requests:
        timed.engine.submit(request)
    while timed.engine.has_work:
        for output in timed.step():
            tokens.setdefault(output.request_id, []).extend(output.token_ids)
        timed.engine.check_integrity()
    for request in requests:
        assert tokens[request.request_id] == timed.model.generate(request, timed.config)[0]


def test_step_times_are_a_line_through_what_was_seen() -> None:
    times = StepTimes()
    assert times.predict_s(8) == 0.0
    times.observe(100, 0.05)
    assert times.predict_s(10) == pytest.approx(0.005)
    times.observe(1, 0.003)
    times.observe(1, 3.0)  # something held it up
    times.observe(1, 0.003)
    times.observe(0, 1.0)  # copies alone
    assert times.predict_s(1) == pytest.approx(0.003 + 3.0 * 0.1 / 2, rel=0.02)
    for _ in range(20):
        times.observe(1, 0.003)
    assert times.predict_s(1) == pytest.approx(0.003, rel=0.01)
    assert times.predict_s(200) == pytest.approx(0.05 + 100 * 0.047 / 99, rel=0.01)
