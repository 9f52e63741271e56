"""The order that a forkserver gets, as one message."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

MAX_BYTES = 128 * 1024
"""Of an order; an environment may be long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A process to fork.

    Attributes:
        preload: modules to import before the fork; free of threads, of sockets and of devices.
        command: `(interpreter, "-m", module, *arguments)`.
        environment: the whole environment of the process.
        log_path: that its output is appended to.
        niceness: how far it stands back for others when the processor is busy.
        cores: of the machine, that it is bound to; () for all that the forkserver may use.
    """

    preload: tuple[str, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: str
    niceness: int = 0
    cores: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, message: bytes) -> "Order":
        fields = json.loads(message)
        return cls(**fields | {name: tuple(fields[name]) for name in ("preload", "command", "cores")})
