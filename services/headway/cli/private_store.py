"""The Redis store of a state directory, whether a stack runs there or not."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.cli.process import end_all, identify, is_alive
from headway.client.stack import ProcessId, read_stack
from headway.core.codec import from_document, to_document
from headway.core.errors import AlreadyExistsError, InvalidArgumentError
from headway.store.embedded import EmbeddedRedis

_LOCK = "profiling.lock"
_RECORD = "profiling.json"
_GRACE_S = 5.0


@contextmanager
def store_of(state_dir: Path) -> Iterator[str]:
    """Yields the URL of the running stack's Redis; where none runs, of one that lives as long as the block.

    Raises:
        AlreadyExistsError: another command does the same there.
        InvalidArgumentError: the directory cannot be written.
    """
    stack = read_stack(state_dir)
    if stack is not None and is_alive(stack.redis):
        yield stack.redis_url
        return
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(state_dir / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidArgumentError(
            f"{state_dir} cannot hold the profile: {error.strerror}.", hint="Choose another with --state-dir."
        ) from None
    try:
        _take(lock, state_dir)
        redis = EmbeddedRedis(state_dir / "redis")
        redis.start()
        (state_dir / _RECORD).write_text(json.dumps(to_document(identify(redis.pid))))
        try:
            yield redis.url
        finally:
            redis.stop()
            (state_dir / _RECORD).unlink(missing_ok=True)
    finally:
        os.close(lock)


def end_private_store(state_dir: Path) -> None:
    """Ends a Redis that a killed command left behind; AlreadyExistsError while the command lives."""
    if (state_dir / _LOCK).exists():
        lock = os.open(state_dir / _LOCK, os.O_RDWR)
        try:
            _take(lock, state_dir)
        finally:
            os.close(lock)


def _take(lock: int, state_dir: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AlreadyExistsError(
            f"`headway profile hardware` keeps what it measures in {state_dir}.",
            hint="Wait until it is done, or name another --state-dir.",
        ) from None
    record = state_dir / _RECORD
    if record.exists():
        end_all([from_document(ProcessId, json.loads(record.read_text()))], grace_s=_GRACE_S)
        record.unlink()
