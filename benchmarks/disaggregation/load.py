"""Streams that decode while long prompts arrive."""

import random
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.serve.outcome import Outcome
from benchmarks.serve.schedule import send_on_time
from benchmarks.serve.server import Server
from benchmarks.serve.summary import Spread
from benchmarks.serve.workload import Request

_FIRST_TOKEN_ID, _END_TOKEN_ID = 300, 30_000
_SHORT_PROMPT, _LONG_OUTPUT = 64, 384
_LONG_PROMPT, _SHORT_OUTPUT = 1024, 32
_FIRST_ARRIVAL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Figures of one kind of request: time to first token, per token after it, and between any two."""

    num_failures: int
    ttft_s: Spread
    tpot_s: Spread
    inter_token_s: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests of one run, from a seed: `decoding` ones that are short and go on for long, sent at once, and
    `arriving` ones that are long and soon over, one every `gap_s`."""

    num_decoding: int
    num_arriving: int
    gap_s: float
    seed: int

    def requests(self) -> dict[str, list[Request]]:
        """Draws the requests, by kind."""
        draw = random.Random(self.seed)

        def prompt(length: int) -> tuple[int, ...]:
            return tuple(draw.randrange(_FIRST_TOKEN_ID, _END_TOKEN_ID) for _ in range(length))

        return {
            "decoding": [Request(0.0, prompt(_SHORT_PROMPT), _LONG_OUTPUT) for _ in range(self.num_decoding)],
            "arriving": [
                Request(_FIRST_ARRIVAL_S + number * self.gap_s, prompt(_LONG_PROMPT), _SHORT_OUTPUT)
                for number in range(self.num_arriving)
            ],
        }


async def send(server: Server, load: Load) -> dict[str, list[Outcome]]:
    """Sends the requests; returns their outcomes by kind and in order."""
    requests = load.requests()
    sends = [(request.arrival_s, server.client.prepare(request)) for kind in requests.values() for request in kind]
    outcomes = iter(await send_on_time(sends))
    return {name: [next(outcomes) for _ in kind] for name, kind in requests.items()}


def figures(outcomes: list[Outcome]) -> Kind:
    """Computes the figures of the complete answers."""
    complete = [outcome for outcome in outcomes if not outcome.error]
    return Kind(
        num_failures=len(outcomes) - len(complete),
        ttft_s=Spread.of(outcome.ttft_s for outcome in complete),
        tpot_s=Spread.of(outcome.tpot_s for outcome in complete if outcome.tpot_s is not None),
        inter_token_s=Spread.of(gap_s for outcome in complete for gap_s in outcome.gaps_s),
    )


def num_equal(found: dict[str, list[Outcome]], expected: dict[str, list[Outcome]]) -> int:
    """Number of requests that both runs answered alike."""
    pairs = ((mine, theirs) for kind in expected for mine, theirs in zip(found[kind], expected[kind], strict=True))
    return sum(not mine.error and not theirs.error and mine.text == theirs.text for mine, theirs in pairs)


def document_of(outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    """The figures by kind, for a result file."""
    return {name: asdict(figures(kind)) for name, kind in outcomes.items()}
