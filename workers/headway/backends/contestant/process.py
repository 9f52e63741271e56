"""A contestant in a process of its own, so that no library's threads, caches or settings are another's."""

import json
import subprocess
import sys
from contextlib import suppress

from headway.backends.contestant.entry import Answer, Entry
from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError

_MODULE = "headway.backends.contestant"
_ENDS_S = 10.0


class ContestantProcess:
    """As `Contestant`. Compiling begins at once, and `deviation` waits for it."""

    def __init__(self, entry: Entry) -> None:
        command = [sys.executable, "-m", _MODULE]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._write(json.dumps(to_document(entry)))
        self._deviation: float | None = None

    @property
    def deviation(self) -> float:
        """Raises:
        FailedPreconditionError: it could not be compiled, or ended.
        """
        if self._deviation is None:
            self._deviation = self._answer().deviation
        return self._deviation

    def run_s(self) -> float:
        """Has it run once; its seconds by its own clock.

        Raises:
            FailedPreconditionError: it ended.
        """
        self._write("")
        return self._answer().seconds

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # of what a process that had ended never read
                stream.close() if stream else None

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its answer says that it ended
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _answer(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait(_ENDS_S)
            raise FailedPreconditionError(f"the process ended with status {status}")
        answer: Answer = from_document(Answer, json.loads(line))
        if answer.fault:
            raise FailedPreconditionError(answer.fault)
        return answer
