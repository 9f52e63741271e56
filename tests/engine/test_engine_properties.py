"""Random arrivals, cancels and failures in a pool that is too small for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.request import GenerationRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]

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
    }
)
ARRIVAL = st.tuples(st.just("arrive"), PROMPT, SAMPLING)
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 15))
STEPS = st.tuples(st.just("step"), st.integers(1, 6))
FAILURE = st.tuples(st.just("fail"))
ACTIONS = st.lists(st.one_of(ARRIVAL, ARRIVAL, ARRIVAL, CANCEL, STEPS, FAILURE), min_size=12, max_size=40)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(limits=LIMITS, actions=ACTIONS)
def test_everything_ends_right_and_in_order(
    make_bench: MakeBench, make_request: MakeRequest, limits: dict[str, Any], actions: list[tuple[Any, ...]]
) -> None:
    bench = make_bench(**limits)
    requests: dict[str, GenerationRequest] = {}
    cancelled: set[str] = set()
    for action in actions:
        match action:
            case ("arrive", prompt, sampling) if len(prompt) < bench.config.max_sequence_len:
                request = make_request(f"r{len(requests)}", prompt, **sampling)
                requests[request.request_id] = request
                bench.engine.submit(request)
            case ("cancel", number):
                if bench.engine.cancel(f"r{number}"):
                    cancelled.add(f"r{number}")
                bench.engine.check_integrity()
            case ("step", num_steps):
                for _ in range(num_steps):
                    bench.step()
            case ("fail",) if bench.engine.stats().num_running:
                bench.runner.failures.append(RuntimeError("the device is gone"))
                _expect_failure(bench)
    bench.run(max_steps=2000)

    for request in requests.values():
        if request.request_id in cancelled:
            expected, _ = bench.model.generate(request, bench.config)
            received = bench.tokens.get(request.request_id, [])
            assert received == expected[: len(received)]
            assert request.request_id not in bench.reasons
        else:
            bench.check_output(request)
    arrivals = [int(request_id[1:]) for request_id in bench.first_outputs]
    assert arrivals == sorted(arrivals), "first tokens do not come in the order of arrival"


def _expect_failure(bench: Bench) -> None:
    try:
        bench.engine.step()
    except RuntimeError:
        bench.engine.check_integrity()
    else:
        raise AssertionError("the runner's exception was swallowed")
