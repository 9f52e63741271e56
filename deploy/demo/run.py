"""The demo: train a small model, serve it, ask it something, show the plan and the latencies, stop.

Run as `python -m deploy.demo.run`. It uses a free port and a state directory of its own, and leaves no process.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deploy.demo.stack import headway, run_python, running_stack
from headway.core.errors import HeadwayError
from headway.core.units import format_duration

MODEL = Path("build/demo-model")
QUESTION = "What is headway?"
ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Latencies in seconds as the client saw them."""

    ttft_s: float
    tpot_s: float
    num_tokens: int


def main() -> None:
    started_at_s = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="headway-demo-") as directory:
            run_demo(Path(directory))
    except subprocess.CalledProcessError as error:
        sys.exit(f"demo: this failed: {' '.join(error.cmd[1:])}")  # it has said why
    except (DemoError, HeadwayError, OSError) as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"\nDone in {format_duration(time.monotonic() - started_at_s)}. Next: headway up --model DIR, docs/serve.md")


class DemoError(Exception):
    """Raised where the stack answered, but not as it should."""


def run_demo(state_dir: Path) -> None:
    run_python("-m", "deploy.demo.make_model", "--out", str(MODEL))
    with running_stack(state_dir, "--model", str(MODEL)) as stack:
        print(f"\n> {QUESTION}\n", flush=True)
        timing = ask(stack.http_url, QUESTION)
        print(
            f"\n\n{timing.num_tokens} tokens: TTFT {format_duration(timing.ttft_s)}, "
            f"TPOT {format_duration(timing.tpot_s)}, as the client measured them\n",
            flush=True,
        )
        headway("plan", "show", state_dir=state_dir)


def ask(http_url: str, question: str) -> Timing:
    """Streams a chat completion to standard output."""
    body = {
        "model": MODEL.name,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 128,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = HTTPConnection(urlsplit(http_url).netloc, timeout=ANSWER_TIMEOUT_S)
    sent_at_s = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    token_times_s: list[float] = []
    num_tokens = 0
    for event in events(connection.getresponse()):
        for choice in event["choices"]:
            if text := choice["delta"].get("content"):
                token_times_s.append(time.perf_counter() - sent_at_s)
                print(text, end="", flush=True)
        if usage := event.get("usage"):
            num_tokens = usage["completion_tokens"]
    connection.close()
    if not token_times_s or not num_tokens:
        raise DemoError("the answer was empty")
    tpot_s = (token_times_s[-1] - token_times_s[0]) / max(1, num_tokens - 1)
    return Timing(ttft_s=token_times_s[0], tpot_s=tpot_s, num_tokens=num_tokens)


def events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yields the JSON documents of a server-sent event stream, up to its '[DONE]'."""
    if response.status != 200:
        raise DemoError(f"HTTP {response.status}: {response.read().decode(errors='replace')}")
    for line in response:
        data = line.decode().strip().removeprefix("data: ")
        if data == "[DONE]":
            return
        if data:
            yield json.loads(data)
    raise DemoError("the stream broke off before its end")


if __name__ == "__main__":
    main()
