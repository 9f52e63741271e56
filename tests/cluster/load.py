"""A steady load by the official client, which tries nothing twice, and what came of it."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import openai

MODEL = "tiny"
SEEDS = tuple(range(1, 11))
LONGEST_GAP_S = 5.0
"""In which something has to come of every stream, whatever happens."""
_PROMPT = "The time between two trains on one line is called the headway."
_STREAM_TOKENS = 1500
_SHORT_TOKENS = 4
_REQUESTS_PER_S = 20.0
_MOST_AT_ONCE = 256
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Seen:
    """What clients saw for a while.

    Attributes:
        num_answers, num_streams: that came to their end.
        slowest_s: that an answer took.
        longest_s: in which nothing came of a stream.
    """

    num_answers: int = 0
    num_streams: int = 0
    slowest_s: float = 0.0
    longest_s: float = 0.0

    def __add__(self, other: "Seen") -> "Seen":
        return Seen(
            self.num_answers + other.num_answers,
            self.num_streams + other.num_streams,
            max(self.slowest_s, other.slowest_s),
            max(self.longest_s, other.longest_s),
        )

    def __str__(self) -> str:
        return (
            f"{self.num_answers} answers, the slowest after {self.slowest_s:.1f} s; "
            f"{self.num_streams} streams, longest gap {self.longest_s:.1f} s"
        )


def text_of_stream(client: openai.OpenAI, seed: int, *, note_gap: Callable[[float], None] = lambda _: None) -> str:
    """The text of a long stream; each time in seconds in which nothing came of it is noted. AssertionError where it
    ended early."""
    text, num_chunks, reason, last_s = "", 0, None, time.monotonic()
    for chunk in client.completions.create(
        model=MODEL,
        prompt=_PROMPT,
        max_tokens=_STREAM_TOKENS,
        seed=seed,
        temperature=1,
        stream=True,
        extra_body={"ignore_eos": True},
    ):
        now_s = time.monotonic()
        note_gap(now_s - last_s)
        last_s = now_s
        for choice in chunk.choices:
            text, num_chunks, reason = text + choice.text, num_chunks + 1, choice.finish_reason or reason
    assert reason == "length", f"a stream ended after {num_chunks} chunks: {reason}"
    return text


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=_TIMEOUT_S)


class Load:
    """Twenty short requests a second, whether or not those before are answered, and ten long streams at a time, each
    one after the other. Use it as a context: it is under way when that is entered; leaving it begins no more streams,
    goes on with requests until the last stream has ended, and asserts that nothing failed, that no stream paused for
    long, and that each text is the one it would be undisturbed.

    Args:
        undisturbed: the texts of the streams by their seeds.

    Attributes:
        seen: by all clients since the beginning.
        faults: what was wrong, with the time of day.
    """

    def __init__(self, url: str, undisturbed: Mapping[int, str]) -> None:
        self.seen = Seen()
        self.faults: list[str] = []
        self._lately = Seen()
        self._url = url
        self._undisturbed = undisturbed
        self._lock = threading.Lock()
        self._is_leaving = threading.Event()
        self._are_streams_over = threading.Event()
        self._asking = threading.Thread(target=self._ask_steadily)
        self._streaming = [threading.Thread(target=self._stream, args=(seed,)) for seed in undisturbed]

    def __enter__(self) -> Self:
        for thread in (self._asking, *self._streaming):
            thread.start()
        time.sleep(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_leaving.set()
        for thread in self._streaming:
            thread.join()
        self._are_streams_over.set()
        self._asking.join()
        print(self.seen)
        assert not self.faults, "\n".join(self.faults)
        assert self.seen.longest_s < LONGEST_GAP_S
        assert self.seen.num_answers
        assert self.seen.num_streams

    def look(self) -> Seen:
        """What was seen since the last look, or the beginning."""
        with self._lock:
            lately, self._lately = self._lately, Seen()
        return lately

    def _stream(self, seed: int) -> None:
        with client_of(self._url) as client:
            while not self._is_leaving.is_set():
                try:
                    text = text_of_stream(client, seed, note_gap=lambda gap_s: self._note(Seen(longest_s=gap_s)))
                    is_same = text == self._undisturbed[seed]
                    fault = "" if is_same else f"the stream with seed {seed} has another text"
                except (openai.OpenAIError, AssertionError, OSError) as error:
                    fault = f"stream with seed {seed}: {error!r}"
                self._note(Seen(num_streams=int(not fault)), fault)

    def _ask_steadily(self) -> None:
        with client_of(self._url) as client, ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
            began_s = time.monotonic()
            for number in itertools.count():
                if self._are_streams_over.wait(max(0.0, began_s + number / _REQUESTS_PER_S - time.monotonic())):
                    return
                pool.submit(self._ask, client)

    def _ask(self, client: openai.OpenAI) -> None:
        began_s = time.monotonic()
        try:
            answer = client.completions.create(model=MODEL, prompt=_PROMPT, max_tokens=_SHORT_TOKENS)
            used = answer.usage.completion_tokens if answer.usage else 0
            fault = "" if used == _SHORT_TOKENS else f"an answer has {used} tokens"
        except openai.OpenAIError as error:
            fault = f"request: {error!r}"
        self._note(Seen(num_answers=int(not fault), slowest_s=time.monotonic() - began_s), fault)

    def _note(self, seen: Seen, fault: str = "") -> None:
        with self._lock:
            self.seen += seen
            self._lately += seen
            if fault:
                self.faults.append(f"{time.strftime('%H:%M:%S')} {fault}")
                self._is_leaving.wait(1)  # a load that fails is not to be a flood


def texts(url: str, seeds: Sequence[int] = SEEDS) -> dict[int, str]:
    """The texts of the streams, where nothing disturbs them."""
    with client_of(url) as client, ThreadPoolExecutor(len(seeds)) as pool:
        found = pool.map(lambda seed: text_of_stream(client, seed), seeds)
        return dict(zip(seeds, found, strict=True))
