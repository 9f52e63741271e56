"""Whether a process lives. It may end between any two questions to the kernel."""

import psutil


def is_alive(process: int | psutil.Process) -> bool:
    """Not one that is gone, or has ended and waits to be reaped. A pid is that of whichever process has it now.

    The first thread to end may be the main one, which alone is what the kernel calls a zombie: what the process has
    open stays so, as the socket at which it listens, until the last one has.
    """
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and (found.status() != psutil.STATUS_ZOMBIE or found.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False
