"""`python -m headway.store.serve_redis`: the Redis of a cluster, with an append-only file, in place of this process."""

import argparse
import os
from pathlib import Path

from headway.store.embedded import find_redis_server

PASSWORD_VARIABLE = "REDIS_PASSWORD"


def configuration(directory: Path, *, address: str, port: int, password: str) -> str:
    """The server's configuration. Every write is on the disk within a second."""
    lines = [
        f"port {port}",
        f"bind {address}",
        "protected-mode no",
        f"dir {directory}",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
    ]
    return "\n".join([*lines, *([f"requirepass {password}"] if password else [])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="headway-redis")
    parser.add_argument("--dir", type=Path, required=True, help="directory of the append-only file")
    parser.add_argument("--bind", default="* -::*", help="addresses to listen on; all by default")
    parser.add_argument("--port", type=int, default=6379)
    arguments = parser.parse_args()
    password = os.environ.pop(PASSWORD_VARIABLE, "")
    text = configuration(arguments.dir, address=arguments.bind, port=arguments.port, password=password)
    # By a pipe, for whoever lists processes can read their arguments.
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    os.dup2(reading, 0)
    server = find_redis_server()
    os.execv(server, [str(server), "-"])


if __name__ == "__main__":
    main()
