"""`python -m headway.worker.vllm_server URL MODEL DIRECTORY [EVENTS]`: whether a server is there, has the model, and
publishes the events of its cache there."""

import asyncio
import sys

from headway.core.errors import HeadwayError
from headway.worker.vllm_server.server import check_serves, describe_server


def main(url: str, model: str, directory: str, events: str = "") -> None:
    try:
        described = asyncio.run(describe_server(url, model=model, events=events))
        check_serves(described.served, directory=directory)
    except HeadwayError as error:
        raise SystemExit(f"{error.message}\n{error.hint}") from None


if __name__ == "__main__":
    main(*sys.argv[1:])
