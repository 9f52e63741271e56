"""Requests to gateways of an emulated release, and streams that are watched while something happens."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

_NUM_TOKENS = 300
_UNDER_WAY = 10


@dataclass(slots=True)
class Seen:
    """A stream as its client sees it."""

    text: str = ""
    num_chunks: int = 0
    finish_reason: str = ""
    fault: str = ""
    under_way: threading.Event = field(default_factory=threading.Event)


class Stream:
    """A stream of some seconds at a gateway, which is under way once this is made."""

    def __init__(self, url: str) -> None:
        self._seen = Seen()
        self._thread = threading.Thread(target=_read, args=(url, self._seen))
        self._thread.start()
        self._seen.under_way.wait(60)

    def text(self) -> str:
        """The whole text, once it has come to its end. AssertionError where it did not."""
        self._thread.join(240)
        assert (self._seen.fault, self._seen.finish_reason) == ("", "length")
        return self._seen.text


def ask(url: str, model: str = "tiny") -> httpx.Response:
    body = {"model": model, "prompt": "one two three", "max_tokens": 4, "temperature": 0}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=60)


def answers(urls: Sequence[str], model: str = "tiny") -> bool:
    """Whether there are gateways, and all answer."""
    try:
        return bool(urls) and all(ask(url, model).status_code == 200 for url in urls)
    except httpx.HTTPError:
        return False


def _read(url: str, seen: Seen) -> None:
    body = {
        "model": "tiny",
        "prompt": "one two three",
        "max_tokens": _NUM_TOKENS,
        "seed": 7,
        "temperature": 1,
        "ignore_eos": True,
        "stream": True,
    }
    try:
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    _take(json.loads(line.removeprefix("data: ")), seen)
                elif line and not line.startswith("data:"):
                    seen.fault += line
    except httpx.HTTPError as error:
        seen.fault = repr(error)
    finally:
        seen.under_way.set()


def _take(document: dict[str, object], seen: Seen) -> None:
    if "error" in document:
        seen.fault = str(document["error"])
        return
    choices = document["choices"]
    assert isinstance(choices, list)
    [choice] = choices
    seen.text += choice["text"]
    seen.num_chunks += 1
    seen.finish_reason = choice["finish_reason"] or ""
    if seen.num_chunks > _UNDER_WAY:
        seen.under_way.set()
