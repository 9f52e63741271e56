"""Processes of this machine by the log that they write to: who was launched, even where nobody wrote it down."""

import os
from dataclasses import dataclass
from pathlib import Path

from headway.observe.process_start import find_process, process_start


@dataclass(frozen=True, slots=True)
class LogWriter:
    """A process whose standard output is the log `NAME.log`; for `start` see `process_start`."""

    name: str
    pid: int
    start: str


def find_log_writers(directory: Path) -> list[LogWriter]:
    """The leaders of a session that write to a log in the directory, or to one that was moved to `NAME.log.1`.

    What they have started themselves leads no session, or writes elsewhere. Processes that have ended, and those of
    users that this one may not look at, are none.
    """
    directory = directory.resolve()
    writers = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            path = (entry / "fd" / "1").readlink()
            leads = os.getsid(pid) == pid
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        name, is_log, _ = path.name.partition(".log")
        start = process_start(pid)
        if leads and is_log and path.parent == directory and start and find_process(pid, start=start):
            writers.append(LogWriter(name, pid, start))
    return writers
