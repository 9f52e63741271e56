"""The lines typed into `headway chat`, kept from one session to the next."""

import os
import readline
from collections.abc import Iterator
from contextlib import contextmanager

from headway.client.stack import default_state_dir

_MAX_LINES = 1000


@contextmanager
def remembering_lines() -> Iterator[None]:
    """Keeps typed lines in a file, so that arrow keys bring back earlier ones. Only the user may read it."""
    path = default_state_dir().parent / "chat_history"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT, 0o600))
    readline.read_history_file(path)
    readline.set_history_length(_MAX_LINES)
    try:
        yield
    finally:
        readline.write_history_file(path)
