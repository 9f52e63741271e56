"""The controller as a child process of the supervisor."""

import logging
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.cli.process import end_all, identify
from headway.cli.supervisor.backoff import Backoff
from headway.client.stack import ProcessId
from headway.core.errors import FailedPreconditionError

log = logging.getLogger(__name__)

_MAX_QUICK_DEATHS = 5
_CLIENT_VARIABLES = ("HEADWAY_API_KEY", "HEADWAY_API_KEYS", "HEADWAY_ENDPOINT", "HEADWAY_STATE_DIR")
_LOG_TAIL_LINES = 8


class Controller:
    """Starts the controller, and starts it again when it dies. Its own children outlive it, and it adopts them.

    Args:
        command: without secrets: every user of the machine can read it.
        environment: variables that it gets besides those of this process.
        log_path: where its output is appended.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], log_path: Path) -> None:
        self._command = command
        self._environment = environment
        self._log_path = log_path
        self._backoff = Backoff()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at_s = 0.0
        self._restart_at_s: float | None = None
        self.process_id: ProcessId | None = None
        self.has_served = False
        """Set once it has been reached; from then on it is restarted for ever."""

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _CLIENT_VARIABLES}
        with self._log_path.open("ab") as log_file:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                env={**environment, **self._environment},
                start_new_session=True,
            )
        self._started_at_s = time.monotonic()
        self.process_id = identify(self._process.pid)

    def keep_alive(self) -> bool:
        """Starts a dead controller again, after its backoff; whether it has just ended. It is to be called often.

        Raises:
            FailedPreconditionError: it died at once, again and again, and has never served.
        """
        assert self._process is not None, "start() first"
        if self._restart_at_s is not None:
            if time.monotonic() >= self._restart_at_s:
                self._restart_at_s = None
                self.start()
        elif (code := self._process.poll()) is not None:
            now_s = time.monotonic()
            delay_s = self._backoff.next_delay_s(lived_s=now_s - self._started_at_s)
            log.warning("the controller ended with code %d; starting it again in %.1f s", code, delay_s)
            self._give_up_where_hopeless(code)
            self._restart_at_s = now_s + delay_s
            return True
        return False

    def kill(self) -> None:
        """Ends a controller that would not hear anything else."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None and self.process_id is not None:
            end_all([self.process_id], grace_s=3.0)
            self._process.wait()

    def _give_up_where_hopeless(self, code: int) -> None:
        if self.has_served or self._backoff.num_quick_deaths < _MAX_QUICK_DEATHS:
            return
        tail = "\n".join(self._log_path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
        raise FailedPreconditionError(
            f"The controller does not start; it ended {_MAX_QUICK_DEATHS} times, last with code {code}.",
            hint=f"The end of {self._log_path}:\n{tail}",
        )
