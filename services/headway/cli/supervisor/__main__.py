"""The supervisor in the background: `headway up --detach` starts it with the deployment on standard input."""

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from headway.cli.supervisor.supervisor import Supervisor
from headway.core.codec import from_document
from headway.core.deployment import Deployment
from headway.core.errors import HeadwayError
from headway.observe.logging import configure_logging

log = logging.getLogger(__name__)


async def main(state_dir: Path, deployment: Deployment) -> None:
    supervisor = Supervisor(state_dir, deployment)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    try:
        await supervisor.run()
    except HeadwayError as error:
        log.critical("%s", error)
        raise SystemExit(1) from None


if __name__ == "__main__":
    wanted = from_document(Deployment, json.load(sys.stdin))
    configure_logging("supervisor", level=wanted.log_level)
    asyncio.run(main(Path(sys.argv[1]), wanted))
