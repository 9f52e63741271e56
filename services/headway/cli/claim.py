"""Claims a state directory: one stack may use it."""

import asyncio
import os
import stat
from pathlib import Path

from headway.cli.process import is_alive
from headway.client.stack import read_stack
from headway.core.errors import AlreadyExistsError, InvalidArgumentError

_OWNER_ALONE = 0o700


def claim(state_dir: Path) -> None:
    """Makes the directory ready for a new stack; ends workers and services that a crashed one left there.

    Raises:
        AlreadyExistsError: a stack, what a crash left of one, or `headway profile hardware` is alive there.
        InvalidArgumentError: the directory cannot be written, or is not this user's alone.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_to_others(state_dir)
    except OSError as error:
        raise InvalidArgumentError(
            f"{state_dir} cannot hold the state: {error.strerror}.", hint="Choose another with --state-dir."
        ) from None
    if (stack := read_stack(state_dir)) is None:
        from headway.cli.private_store import end_private_store  # imports the Redis client, which is slow

        end_private_store(state_dir)
        return
    if is_alive(stack.supervisor):
        raise AlreadyExistsError(
            f"A stack runs already with its state in {state_dir} (at {stack.http_url}).",
            hint="Stop it with `headway down`, or start another with --state-dir DIR and --port P.",
        )
    if is_alive(stack.redis) or is_alive(stack.controller):
        raise AlreadyExistsError(
            f"A stack with its state in {state_dir} lost its supervisor; the rest of it still runs.",
            hint="End it with `headway down`.",
        )
    from headway.cli.supervisor.crashed import end_crashed  # imports the Redis client, which is slow

    asyncio.run(end_crashed(state_dir, stack))


def _close_to_others(state_dir: Path) -> None:
    """Closes the directory to other users, as it holds the stack's token; refuses one that everybody may write to."""
    status = state_dir.stat()
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
        raise InvalidArgumentError(
            f"{state_dir} is not this user's alone, and the state holds secrets.",
            hint="Choose another with --state-dir; it is made where there is none.",
            field="--state-dir",
        )
    if stat.S_IMODE(status.st_mode) != _OWNER_ALONE:
        state_dir.chmod(_OWNER_ALONE)
