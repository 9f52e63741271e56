"""What reads something that others wrote, and is to read anything, or to refuse it with a reason."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError, Message

from headway.core.errors import HeadwayError
from tests.fuzz.mutation import Mutation, garble, mutate_json, mutation_of

SEEDS = Path(__file__).parent / "seeds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Attributes:
    read: reads bytes; HeadwayError is how it refuses them, and any other error a bug.
    plain: what it reads without a fault; cases begin there.
    mutate: makes a case of another.
    """

    name: str
    read: Callable[[bytes], object]
    plain: tuple[bytes, ...]
    mutate: Mutation

    def __call__(self, content: bytes) -> None:
        with suppress(HeadwayError):
            self.read(content)

    def seeds(self) -> list[Path]:
        """Cases that have found a fault before, each a file."""
        return sorted((SEEDS / self.name).glob("*"))


TARGETS: dict[str, Target] = {}
"""By name; a module that defines some adds them when it is imported."""


def reads_json(*documents: Any) -> Callable[[Callable[[bytes], object]], Target]:
    """Makes a target of a function that reads a JSON document."""
    return _made([json.dumps(document).encode() for document in documents], mutate_json, lambda content: content)


def reads_bytes(*contents: bytes, mutate: Mutation = garble) -> Callable[[Callable[[bytes], object]], Target]:
    """Makes a target of a function that reads bytes."""
    return _made(contents, mutate, lambda content: content)


def reads_message(message: Message) -> Callable[[Callable[[Any], object]], Target]:
    """Makes a target of a function that takes a message of this kind; what is none does not get to it."""
    kind = type(message)

    def parsed(content: bytes) -> Message | None:
        try:
            return kind.FromString(content)
        except DecodeError:
            return None

    return _made([message.SerializeToString()], mutation_of(kind), parsed)


def _made(
    plain: list[bytes] | tuple[bytes, ...], mutate: Mutation, parse: Callable[[bytes], Any]
) -> Callable[[Callable[[Any], object]], Target]:
    def make(read: Callable[[Any], object]) -> Target:
        def read_bytes(content: bytes) -> None:
            if (given := parse(content)) is not None:
                read(given)

        name = read.__name__.replace("_", "-")
        target = Target(name=name, read=read_bytes, plain=tuple(plain), mutate=mutate)
        assert name not in TARGETS, f"two targets are called {name}"
        TARGETS[name] = target
        return target

    return make
