"""Completions of a stack's models, and streams whose engine is killed in their midst."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.integration.stack import RunningStack, wait_for

NUM_TOKENS = 400
PROMPT = "the headway between two trains " * 8
_KILLED_AT = 17


def body(model: str = "tiny", **fields: Any) -> dict[str, Any]:
    base = {"model": model, "prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    return base | fields


def ask(stack: RunningStack, *, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    return httpx.post(f"{stack.url}/v1/completions", json=body(**fields), headers=headers, timeout=120)


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def killed_at(stack: RunningStack, kill: Callable[[], None], **fields: Any) -> tuple[str, dict[str, Any] | None]:
    """Streams an answer, and kills at its 17th token; returns its text, and the error that ended it."""
    text, error, is_killed = "", None, False
    asked = body(max_tokens=NUM_TOKENS, stream=True, **fields)
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=asked, timeout=300) as response:
        events = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
        for number, event in enumerate(events):
            if event == "[DONE]":
                break
            message = json.loads(event)
            if (error := message.get("error")) is not None:
                break
            text += message["choices"][0]["text"]
            if number >= _KILLED_AT and not is_killed:
                kill()
                is_killed = True
    assert is_killed
    return text, error


def until_serving(stack: RunningStack, model: str, *, num_workers: int) -> None:
    """Waits until so many workers have loaded the model."""

    def serve() -> bool:
        workers = stack.status()["controller"]["workers"]
        return sum(worker["state"] == "ready" and worker.get("model") == model for worker in workers) == num_workers

    wait_for(serve, timeout_s=400)
