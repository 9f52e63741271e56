"""Runs one training run: reads its directory on standard input, tells every step on standard output and in the run's
progress file. A further line, or SIGTERM, asks it to end behind the step that it is in."""

import io
import json
import os
import signal
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import IO

from headway.core.errors import HeadwayError
from headway.core.fault import Fault
from headway.core.training_run import PROCESS_FILE, TrainingNews
from headway.observe.process_start import process_start
from headway.train.figures import RunFigures
from headway.train.gang import Gang, train
from headway.train.progress import open_progress, tell
from headway.train.setup import read_setup


def main() -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
        orders = io.FileIO(os.dup(sys.stdin.fileno()))  # without a buffer, whose lock a forked rank would wait for
        directory = Path(json.loads(orders.readline()))
        process = directory / PROCESS_FILE
        process.with_suffix(".tmp").write_text(json.dumps({"pid": os.getpid(), "start": process_start(os.getpid())}))
        process.with_suffix(".tmp").rename(process)
        with open_progress(directory) as kept:
            outputs: list[IO[str]] = [kept, answers]  # who reads an error in the answers ends this process
            try:
                _run(directory, orders, outputs)
            except HeadwayError as error:
                tell(outputs, {"error": Fault.of(error)})


def _run(directory: Path, orders: io.FileIO, outputs: list[IO[str]]) -> None:
    stop = _Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop.ask())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; who reads the answers decides
    threading.Thread(target=stop.listen, args=(orders,), daemon=True).start()

    setup = read_setup(directory)

    def restarted(error: HeadwayError) -> None:
        figures.tell_restart()
        tell(outputs, TrainingNews(restart=error.message))

    with closing(RunFigures(directory, setup.job)) as figures:
        for report in train(setup, started=stop.take, restarted=restarted):
            figures.tell(report)
            tell(outputs, TrainingNews(step=report))


class _Stop:
    """The wish to stop, which holds for a gang that is started later too."""

    def __init__(self) -> None:
        self._gang: Gang | None = None
        self._was_asked = False

    def take(self, gang: Gang) -> None:
        self._gang = gang
        if self._was_asked:
            gang.stop()

    def ask(self) -> None:
        self._was_asked = True
        if self._gang is not None:
            self._gang.stop()

    def listen(self, orders: io.FileIO) -> None:
        if orders.readline():  # an empty line; its end says nothing: a run goes on without its terminal
            self.ask()


if __name__ == "__main__":
    main()
