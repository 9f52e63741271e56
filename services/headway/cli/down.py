"""The command `headway down`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import StateDir
from headway.cli.process import is_alive, terminate, wait_until_ended
from headway.cli.supervisor.crashed import end_crashed
from headway.cli.supervisor.supervisor import DRAIN_S
from headway.client.stack import Stack, default_state_dir, find_stack
from headway.core.errors import DeadlineExceededError

app = typer.Typer(add_completion=False)

_STOP_TIMEOUT_S = 30.0


@app.command()
def down(
    *,
    state_dir: StateDir = None,
    grace_s: Annotated[
        float, typer.Option(min=0, max=DRAIN_S, help="Seconds that running requests get to end.")
    ] = 10.0,
) -> None:
    """Stop a stack."""
    directory = state_dir or default_state_dir()
    stack = find_stack(directory)
    if is_alive(stack.supervisor):
        _stop(directory, stack, grace_s=grace_s)
        typer.echo(f"Stopped the stack at {stack.http_url}.")
    else:
        asyncio.run(end_crashed(directory, stack))
        typer.echo(f"The stack at {stack.http_url} had lost its supervisor; ended what was left of it.")


def _stop(directory: Path, stack: Stack, *, grace_s: float) -> None:
    """Stops the supervisor. One signal lets running requests end, a second one does not."""
    terminate(stack.supervisor)
    if wait_until_ended(stack.supervisor, timeout_s=grace_s):
        return
    terminate(stack.supervisor)
    if not wait_until_ended(stack.supervisor, timeout_s=_STOP_TIMEOUT_S):
        raise DeadlineExceededError(
            f"The supervisor (pid {stack.supervisor.pid}) has not ended after {_STOP_TIMEOUT_S:.0f} s.",
            hint=f"Look at {directory}/logs/supervisor.log; `kill -9` it and call `headway down` again.",
        )
