"""Running a stack in the foreground, until it is told to stop."""

import asyncio
import signal
import time
from pathlib import Path

from rich.console import Console

from headway.cli.startup import show_until_ready
from headway.cli.supervisor.supervisor import Supervisor
from headway.cli.welcome import welcome
from headway.client.stack import Stack
from headway.core.deployment import Deployment
from headway.core.plan.serving import ServingPlan
from headway.observe.logging import configure_logging

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_foreground(state_dir: Path, deployment: Deployment, *, console: Console) -> None:
    """Runs the stack until SIGINT or SIGTERM. Raises HeadwayError where start-up fails; nothing is left running
    then."""
    configure_logging("supervisor", level="warning", json_lines=False)
    supervisor = Supervisor(state_dir, deployment)
    started_at_s = time.monotonic()
    running = asyncio.create_task(supervisor.run())
    starting = asyncio.create_task(show_until_ready(state_dir, console))
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _stop, supervisor, starting, console)
    await asyncio.wait((running, starting), return_when=asyncio.FIRST_COMPLETED)
    starting.cancel()  # where it is not done, `running` has failed or was stopped
    has_failed = starting.done() and not starting.cancelled() and starting.exception() is not None
    if has_failed:
        supervisor.stop_now()
    elif starting.done() and not starting.cancelled():
        stack, plan = starting.result()
        welcome(console, stack, plan, took_s=time.monotonic() - started_at_s, stop_with="Ctrl-C")
    await running
    if has_failed:
        starting.result()


def _stop(supervisor: Supervisor, starting: "asyncio.Task[tuple[Stack, ServingPlan]]", console: Console) -> None:
    if starting.done():
        console.print("Finishing running requests; Ctrl-C again stops at once.", highlight=False)
    starting.cancel()
    supervisor.stop()
