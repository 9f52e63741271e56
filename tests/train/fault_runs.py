"""Trains runs that are disturbed, each as its directory's name says; see test_faults."""

import json
import os
import signal
import sys
from contextlib import closing
from pathlib import Path

from headway.core.codec import to_document
from headway.core.errors import HeadwayError
from headway.core.training_run import StepReport
from headway.train.gang import Gang, train
from headway.train.setup import read_setup

AT = 7
SIGNALS = {"killed": signal.SIGKILL, "background": signal.SIGKILL, "stopped": signal.SIGSTOP}


def disturbed(directory: Path) -> dict[str, object]:
    """Sends a rank the signal behind step 7, once, or gives the whole run up there and begins it again."""
    gangs: list[Gang] = []
    steps: list[StepReport] = []
    restarts: list[str] = []
    number = SIGNALS.get(directory.name)
    error = ""
    setup = read_setup(directory)
    try:
        with closing(train(setup, started=gangs.append, restarted=lambda e: restarts.append(str(e)))) as reports:
            for report in reports:
                steps.append(report)
                if report.step == AT and len(gangs) == 1 and number is not None:
                    os.kill(gangs[0].pids[1], number)
                if report.step == AT and directory.name == "asked":
                    gangs[0].stop()
                if report.step == AT and directory.name == "given-up":
                    break
        if directory.name in ("given-up", "asked"):
            steps += train(setup, started=gangs.append, restarted=lambda e: restarts.append(str(e)))
    except HeadwayError as fault:
        error = str(fault)
    left = [pid for gang in gangs for pid in gang.pids if Path(f"/proc/{pid}").exists()]
    return {"steps": to_document(tuple(steps)), "restarts": restarts, "error": error, "left": left}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        (Path(name) / "told.json").write_text(json.dumps(disturbed(Path(name))))
