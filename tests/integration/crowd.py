"""Requests of every kind at the same time, and clients that leave in the middle."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from tests.integration.stack import RunningStack

PREFIX = "Two trains leave at noon and meet at three, on the longest line of the country. " * 3
PROMPTS = ["trains run", PREFIX + "Who", PREFIX + "Where", "Über die Brücke fährt früh " * 12]
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "long": {"max_tokens": 300},
    "sampled": {"temperature": 0.8, "seed": 7, "top_p": 0.9},
    "penalised": {"frequency_penalty": 0.4},
    "samples": {"temperature": 1.0, "seed": 11, "n": 3},
    "beams": {"beam_width": 3, "n": 3, "max_tokens": 24},
    "logprobs": {"logprobs": 3},
    "echo": {"logprobs": 1, "echo": True, "max_tokens": 8},
    "choice": {"structured_outputs": {"choice": ["the fast train", "the slow train"]}, "ignore_eos": False},
    "regex": {"structured_outputs": {"regex": "[a-c]{3,9}-[0-9]{4}"}, "ignore_eos": False},
}
_LEAVING = {"max_tokens": 300, "n": 2, "temperature": 1.0, "stream": True}
_NUM_LEAVING = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client sees of a request: the texts of its choices, and the log probabilities of their tokens."""

    texts: tuple[str, ...]
    logprobs: tuple[float, ...]

    def is_close_to(self, other: "Answer") -> bool:
        """Equal but for the rounding of sums that are made in another order."""
        same = self.texts == other.texts and len(self.logprobs) == len(other.logprobs)
        return same and all(abs(a - b) < 1e-3 for a, b in zip(self.logprobs, other.logprobs, strict=True))


def ask_all(stack: RunningStack, model: str) -> dict[str, list[Answer]]:
    """Every kind of every prompt, at once, while others come and leave; by kind, in the order of the prompts."""
    with ThreadPoolExecutor(len(KINDS) * len(PROMPTS) + _NUM_LEAVING) as pool:
        leaving = [pool.submit(_leave, stack, model, after_events=5 + 3 * index) for index in range(_NUM_LEAVING)]
        asked = {
            kind: [pool.submit(_ask, stack, model, prompt=prompt, **fields) for prompt in PROMPTS]
            for kind, fields in KINDS.items()
        }
        for client in leaving:
            client.result()
        return {kind: [answer.result() for answer in answers] for kind, answers in asked.items()}


def _ask(stack: RunningStack, model: str, **fields: Any) -> Answer:
    response = httpx.post(f"{stack.url}/v1/completions", json=_body(model) | fields, timeout=120)
    assert response.status_code == 200, response.text
    choices = response.json()["choices"]
    logprobs = [choice["logprobs"]["token_logprobs"] for choice in choices if choice.get("logprobs")]
    return Answer(
        tuple(choice["text"] for choice in choices),
        tuple(value for values in logprobs for value in values if value is not None),
    )


def _leave(stack: RunningStack, model: str, *, after_events: int) -> None:
    body = _body(model) | _LEAVING | {"prompt": PREFIX}
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=body, timeout=120) as response:
        assert response.status_code == 200, response.read().decode()
        lines = response.iter_lines()
        for _ in range(2 * after_events):  # each event is followed by an empty line
            next(lines)


def _body(model: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": 48, "temperature": 0, "ignore_eos": True}
