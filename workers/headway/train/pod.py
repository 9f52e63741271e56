"""Runs one rank of a run in a pod of a Kubernetes Job: `python -m headway.train.pod DIRECTORY HOST PORT CORES`.

The Job numbers its pods, and starts again those that end too early; all meet at HOST, which is pod 0. SIGTERM asks all
ranks to end behind the step that they are in. Ends with status 0 when the run is done, 1 where it failed and can go on
from its last checkpoint, 2 where that would fail again, and 3 where it was asked to end.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event
from typing import Any

from headway.core.codec import from_document
from headway.core.errors import HeadwayError, UnavailableError
from headway.core.fault import Fault
from headway.core.training_run import CHECKPOINTS_DIRECTORY, PROGRESS_FILE, StepReport, TrainingNews
from headway.train.checkpoint import Checkpoints
from headway.train.figures import RunFigures
from headway.train.progress import tell
from headway.train.rank import rank_news
from headway.train.rendezvous import Rendezvous, listen
from headway.train.setup import Setup, read_setup

_INDEX = "JOB_COMPLETION_INDEX"
_RESOLVE_S, _LOOK_EVERY_S = 300.0, 1.0
_DONE, _CAN_GO_ON, _FAILS_AGAIN, _WAS_ASKED = range(4)


def main() -> int:
    path, host, port, cores = sys.argv[1:]
    rank, directory = int(os.environ[_INDEX]), Path(path)
    should_stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: should_stop.set())
    try:
        setup = read_setup(directory)
        rendezvous = Rendezvous(host=_resolved(host), port=int(port))
        listener = None if rank else listen(rendezvous.host, port=rendezvous.port)[0]
        news = rank_news(
            setup,
            rank,
            meet=lambda: rendezvous.meet(rank, len(setup.execution.ranks), listener=listener),
            should_stop=should_stop.is_set,
            num_threads=int(cores),
        )
        _tell(setup, news, rank)
    except HeadwayError as error:
        sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
        return _CAN_GO_ON if isinstance(error, UnavailableError) else _FAILS_AGAIN
    latest = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=setup.job.checkpoint.keep).latest()
    return _DONE if latest is not None and latest.facts.step == setup.job.steps else _WAS_ASKED


def _tell(setup: Setup, news: Iterable[dict[str, Any]], rank: int) -> None:
    """Writes what a rank tells into the run's progress, and rank 0's steps for Prometheus and TensorBoard too; raises
    the error that ends the rank."""
    with ExitStack() as left:
        kept = left.enter_context((setup.directory / PROGRESS_FILE).open("a"))
        figures = None if rank else left.enter_context(closing(RunFigures(setup.directory, setup.job)))
        for document in news:
            if "error" in document:
                fault = from_document(Fault, document["error"])
                tell([kept], {"error": fault})
                raise fault.raised()
            report = from_document(StepReport, document)
            assert figures is not None, "only rank 0 tells of steps"
            figures.tell(report)
            tell([kept], TrainingNews(step=report))


def _resolved(host: str) -> str:
    """The address of a host, whose pod may just be starting."""
    until_s = time.monotonic() + _RESOLVE_S
    while True:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
        except socket.gaierror as error:
            if time.monotonic() > until_s:
                raise UnavailableError(f"Nothing is called {host}: {error}.") from error
            time.sleep(_LOOK_EVERY_S)
        else:
            return str(found)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # threads of gloo that wait for a peer would be waited for
