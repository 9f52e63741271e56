"""One stack per state directory."""

import asyncio
from pathlib import Path

from headway.cli.process import is_alive
from headway.client.stack import read_stack
from headway.core.errors import AlreadyExistsError, InvalidArgumentError


def claim(state_dir: Path) -> None:
    """Makes the directory ready for a new stack; ends workers and services that a crashed one left there.

    Raises:
        AlreadyExistsError: a stack, what a crash left of one, or `headway profile hardware` is alive there.
        InvalidArgumentError: the directory cannot be written.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
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
