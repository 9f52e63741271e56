"""`python -m headway.worker.vllm_server URL MODEL DIRECTORY`: whether a server is there, and has the model."""

import asyncio
import sys

from headway.core.errors import HeadwayError
from headway.worker.vllm_server.server import check_serves, describe_server


def main(url: str, model: str, directory: str) -> None:
    try:
        check_serves(asyncio.run(describe_server(url, model=model)).served, directory=directory)
    except HeadwayError as error:
        raise SystemExit(f"{error.message}\n{error.hint}") from None


if __name__ == "__main__":
    main(*sys.argv[1:])
