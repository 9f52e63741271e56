"""Clients that ask a stack again and again, and write down what they see."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import httpx

from tests.chaos.history import Asked, Outcome

NUM_PROMPTS = 64
NUM_TOKENS = 20
_TIMEOUT_S = 90.0
_PAUSE_S = 0.1  # of a client that was not answered
_NUM_AT_ONCE = 8


class Crowd:
    """Clients in threads of their own, each with one request at a time; each request by a connection of its own."""

    def __init__(self, url: str, *, num_clients: int, headers: dict[str, str]) -> None:
        self.requests: list[Asked] = []
        self._url = f"{url}/v1/completions"
        self._headers = headers
        self._is_over = threading.Event()
        self._turns = threading.Condition()
        self._num_asking = 0
        self._is_resting = False
        self._numbers = count()
        self._threads = [threading.Thread(target=self._ask) for _ in range(num_clients)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> list[Asked]:
        """Lets what runs come to its end, and returns all."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        return self.requests

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Nobody asks anything, once what runs has come to its end."""
        with self._turns:
            self._is_resting = True
            self._turns.wait_for(lambda: self._num_asking == 0)
        try:
            yield
        finally:
            with self._turns:
                self._is_resting = False
                self._turns.notify_all()

    def ask(self, prompt: str) -> Asked:
        """One request, to whatever end it comes."""
        began_s, pieces, detail = time.monotonic(), list[str](), ""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0, "stream": True}
        outcome: Outcome | None = Outcome.BROKEN
        try:
            with httpx.stream("POST", self._url, json=body, headers=self._headers, timeout=_TIMEOUT_S) as response:
                if response.status_code != 200:
                    outcome, detail = Outcome.REFUSED, response.read().decode()
                for line in response.iter_lines() if response.status_code == 200 else ():
                    if line == "data: [DONE]":
                        outcome = Outcome.COMPLETE
                    elif line.startswith("data: "):
                        event = json.loads(line.removeprefix("data: "))
                        if "error" in event:
                            outcome, detail = Outcome.REFUSED, str(event["error"])
                            break
                        pieces.append(event["choices"][0]["text"])
        except httpx.ReadTimeout:
            outcome = None
        except httpx.TransportError as error:
            detail = repr(error)
        return Asked(
            prompt=prompt,
            began_s=began_s,
            ended_s=time.monotonic(),
            outcome=outcome,
            text="".join(pieces),
            detail=detail,
        )

    def answers(self) -> dict[str, str]:
        """What each prompt that was asked is answered while all is well."""
        prompts = sorted({asked.prompt for asked in self.requests})
        with ThreadPoolExecutor(_NUM_AT_ONCE) as pool:
            return {asked.prompt: asked.text for asked in pool.map(self.ask, prompts)}

    def _ask(self) -> None:
        while not self._is_over.is_set():
            with self._turn():
                asked = self.ask(f"the headway between two trains is {next(self._numbers) % NUM_PROMPTS}")
            self.requests.append(asked)
            if asked.outcome is not Outcome.COMPLETE:
                self._is_over.wait(_PAUSE_S)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._turns:
            self._turns.wait_for(lambda: not self._is_resting)
            self._num_asking += 1
        try:
            yield
        finally:
            with self._turns:
                self._num_asking -= 1
                self._turns.notify_all()
