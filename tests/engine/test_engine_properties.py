"""Random groups, beams, cancels and failures in a pool that is too small for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.core.request import BeamSearch, EarlyStopping, FinishReason, GenerationRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeGroup = Callable[..., list[GenerationRequest]]

LIMITS = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(4, 14),
        "block_size": st.sampled_from([1, 3, 4]),
        "max_model_len": st.integers(14, 40),
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(6, 30),
        "max_num_prefill_tokens": st.sampled_from([None, 1, 3, 5]),
        "enable_prefix_cache": st.booleans(),
        "watermark": st.sampled_from([0.0, 0.01, 0.3]),
        "eos_token_ids": st.sampled_from([(), (1, 2, 3, 4)]),
        "num_host_blocks": st.sampled_from([0, 3, 30]),
        "preemption": st.sampled_from(["auto", "recompute", "swap"]),
        "num_draft_tokens": st.sampled_from([0, 1, 4]),
        "queue_policy": st.sampled_from(QueuePolicy),
    }
)
FAMILIES = [tuple(start * position % 7 for position in range(12)) for start in range(3)]
PROMPT = st.builds(lambda family, length: family[:length], st.sampled_from(FAMILIES), st.integers(1, 12))
SAMPLING = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 25),
        "min_tokens": st.integers(0, 3),
        "ignore_eos": st.booleans(),
        "num_prompt_logprobs": st.sampled_from([None, None, 0]),
        "temperature": st.sampled_from([0.0, 1.0]),
        "bad_token_ids": st.sampled_from([(), (), ((99,),)]),  # which the oracle cannot say
    }
)
AHEAD = {"runs_ahead": True}
BEAM = st.builds(
    BeamSearch,
    width=st.integers(2, 4),
    num_hypotheses=st.integers(1, 2),
    length_penalty=st.sampled_from([-1.0, 0.0, 1.0]),
    early_stopping=st.sampled_from(EarlyStopping),
)
MEMBERS = st.sampled_from([1, 1, 2, 3, 5])
GIVEN = st.lists(st.integers(0, 9), min_size=1, max_size=4)
ACTIONS = st.one_of(
    st.tuples(st.just("sample"), PROMPT, SAMPLING, MEMBERS),
    st.tuples(st.just("sample"), PROMPT, SAMPLING, MEMBERS),
    st.tuples(st.just("sample"), PROMPT, SAMPLING, MEMBERS),
    st.tuples(st.just("resume"), PROMPT, SAMPLING, GIVEN),
    st.tuples(st.just("search"), PROMPT, SAMPLING, BEAM),
    st.tuples(st.just("cancel"), st.integers(0, 15), st.integers(0, 3)),
    st.tuples(st.just("restart"), st.integers(0, 15), st.integers(0, 3)),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("fail")),
    st.tuples(st.just("poison"), st.integers(0, 15), st.integers(0, 3), st.booleans()),
)


class Episode:
    """What happens to an engine, and what must come of it."""

    def __init__(self, bench: Bench, make_group: MakeGroup, num_tenants: int = 1) -> None:
        self.bench = bench
        self.num_tenants = num_tenants
        self.make_group = make_group
        self.groups: list[list[GenerationRequest]] = []
        self.cancelled: dict[str, int] = {}  # tokens that had come by then
        self.poisoned: set[int] = set()  # groups of which one member makes every step fail
        self.disturbed: set[int] = set()  # groups whose first tokens may come late

    def sample(self, prompt: tuple[int, ...], sampling: dict[str, Any], n: int) -> None:
        self._submit(self.make_group(self._name(), n, prompt, **sampling))

    def resume(self, prompt: tuple[int, ...], sampling: dict[str, Any], num_given: list[int]) -> None:
        """Each sample goes on after so many of its tokens, or is complete."""
        group = self.make_group(self._name(), len(num_given), prompt, **sampling)
        outputs = [self.bench.model.generate(request, self.bench.config)[0] for request in group]
        resumed = zip(group, outputs, num_given, strict=True)
        self._submit([replace(request, output_token_ids=tuple(output[:num])) for request, output, num in resumed])

    def search(self, prompt: tuple[int, ...], sampling: dict[str, Any], beam: BeamSearch) -> None:
        self._submit(self.make_group(self._name(), 1, prompt, **sampling, beam=beam))

    def cancel(self, number: int, member: int) -> None:
        if self.bench.engine.cancel(f"r{number}-{member}"):
            self.cancelled[f"r{number}-{member}"] = len(self.bench.tokens.get(f"r{number}-{member}", []))
            if self.bench.runner.in_flight:
                self.disturbed.add(number)  # a leader's prefill may have been lost on the way
        self.bench.engine.check_integrity()

    def restart(self, number: int, member: int) -> None:
        """Cancels a request and submits it again under the same id."""
        request_id = f"r{number}-{member}"
        self.cancel(number, member)
        if request_id in self.cancelled and request_id not in self.bench.engine.request_ids():
            del self.cancelled[request_id]
            self.disturbed.add(number)
            self.bench.tokens.pop(request_id, None)
            self.bench.engine.submit(self.groups[number][member])
            self.bench.engine.check_integrity()

    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.bench.step()

    def fail(self) -> None:
        """A step fails for once: nobody loses anything by it, but its place in line."""
        if not self.bench.running or self.bench.is_recovering or self.bench.runner.poison | self.bench.runner.refused:
            return
        # Those who were in the step are under suspicion: the others go on before them.
        self.disturbed |= {int(request_id[1:].split("-")[0]) for request_id in self.bench.engine.request_ids()}
        self.bench.runner.failures.append(RuntimeError("the device is gone"))
        with pytest.raises(RuntimeError):
            self.bench.engine.step()
        outputs = self.bench.engine.recover("the device is gone")
        assert not any(output.error for output in outputs)
        self.bench.take(outputs)
        self.bench.engine.check_integrity()

    def poison(self, number: int, member: int, is_refused: bool) -> None:
        """From now on, whatever steps a request takes part in fail."""
        request_id = f"r{number}-{member}"
        if request_id in self.bench.engine.request_ids():
            (self.bench.runner.refused if is_refused else self.bench.runner.poison).add(request_id)
            self.poisoned.add(number)

    def finish(self) -> None:
        self.bench.run(max_steps=3000)
        for request in [request for group in self.groups for request in group]:
            if request.request_id in self.cancelled:
                assert request.request_id not in self.bench.reasons
                assert len(self.bench.tokens.get(request.request_id, [])) == self.cancelled[request.request_id]
                self._check_unfinished(request)
            elif self.bench.reasons[request.request_id] is FinishReason.ERROR:
                assert int(request.request_id[1:].split("-")[0]) in self.poisoned
                self._check_unfinished(request)
            else:
                self.bench.check_output(request)
        told = [request_id for request_id in self.bench.first_outputs if self.bench.tokens[request_id]]
        arrivals = [int(request_id[1:].split("-")[0]) for request_id in told]
        arrivals = [number for number in arrivals if number not in self.disturbed]
        is_one_line = self.bench.config.queue_policy is QueuePolicy.FCFS and self.num_tenants == 1
        if is_one_line and not self.poisoned:
            assert arrivals == sorted(arrivals), "first tokens do not come in the order of arrival"

    def _name(self) -> str:
        return f"r{len(self.groups)}"

    def _submit(self, group: list[GenerationRequest]) -> None:
        """One that can never run here is refused at once."""
        try:
            number = len(self.groups)  # some order that is not that of arrival
            tenant = str(number % self.num_tenants)
            facts: dict[str, Any] = {"priority": number * 7 % 5, "slack_s": number * 11 % 7 * 40.0, "tenant": tenant}
            group = [replace(each, **facts) for each in group]
            self.bench.engine.submit_group(group)
        except InvalidArgumentError:
            assert self.bench.engine.request_ids().count(group[0].request_id) == 0
        else:
            self.groups.append(group)
        self.bench.engine.check_integrity()

    def _check_unfinished(self, request: GenerationRequest) -> None:
        """What came before the end is right."""
        if request.sampling.beam is None:
            expected, _ = self.bench.model.generate(request, self.bench.config)
            received = self.bench.tokens.get(request.request_id, [])
            assert received == expected[len(request.output_token_ids) :][: len(received)]


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    in_flight=st.sampled_from([*({"num_micro_batches": number} for number in range(1, 5)), AHEAD]),
    limits=LIMITS,
    num_tenants=st.sampled_from([1, 1, 2, 3]),
    actions=st.lists(ACTIONS, min_size=12, max_size=40),
)
def test_everything_ends_right_and_in_order(
    make_bench: MakeBench,
    make_group: MakeGroup,
    in_flight: dict[str, Any],
    limits: dict[str, Any],
    num_tenants: int,
    actions: list[tuple[Any, ...]],
) -> None:
    """As plain generation would, whatever is in flight: so it is the same with any number of micro-batches."""
    episode = Episode(make_bench(**limits, **in_flight), make_group, num_tenants)
    for name, *arguments in actions:
        getattr(episode, name)(*arguments)
    episode.finish()
