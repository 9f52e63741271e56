"""Named places between what is done and what is said of it, at which a test can have a process killed.

HEADWAY_FAILPOINTS names a directory, for all processes of a stack. The first process that comes to the place NAME while
the directory holds a file NAME renames it to NAME.reached, and is killed on the spot. Without the variable a place is
nothing.
"""

import os
import signal
from pathlib import Path

VARIABLE = "HEADWAY_FAILPOINTS"

_DIRECTORY = os.environ.get(VARIABLE)


def failpoint(name: str) -> None:
    """Where a test asks for it, the process ends here."""
    if _DIRECTORY is None:
        return
    armed = Path(_DIRECTORY) / name
    try:
        armed.rename(armed.with_name(f"{name}.reached"))
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
