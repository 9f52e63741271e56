"""Long streamed completions, read in the background."""

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx

from tests.integration.stack import RunningStack

LONG = {"max_tokens": 1900, "ignore_eos": True}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8, "seed": 7, "top_p": 0.9},
    "two samples": {"temperature": 0.8, "seed": 9, "n": 2},
}


class Stream:
    """A streamed completion that is read in the background."""

    def __init__(self, stack: RunningStack, pool: ThreadPoolExecutor, *, num_events: int = 40, **fields: Any) -> None:
        self.request_id = ""
        self._is_running = threading.Event()
        self._stack = stack
        self._num_events = num_events
        self._fields = {"model": "tiny", "prompt": "the headway between two trains", **LONG, **fields}
        self.texts: Future[list[str]] = pool.submit(self._read)

    def wait(self) -> None:
        """Until it has a good many tokens: `num_events` messages."""
        assert self._is_running.wait(60)

    def _read(self) -> list[str]:
        texts = [""] * self._fields.get("n", 1)
        body = {**self._fields, "stream": True}
        is_done = False
        with httpx.stream("POST", f"{self._stack.url}/v1/completions", json=body, timeout=120) as response:
            assert response.status_code == 200, response.read()
            for number, line in enumerate(line for line in response.iter_lines() if line.startswith("data: ")):
                if line == "data: [DONE]":
                    is_done = True
                    break
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                self.request_id = event["id"].removeprefix("cmpl-")
                for choice in event["choices"]:
                    texts[choice["index"]] += choice["text"]
                if number == self._num_events:
                    self._is_running.set()
        assert is_done, "the stream ended without [DONE]"
        return texts
