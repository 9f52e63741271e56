"""Trains runs, given by their directories, one after another; ranks are forked, so torch is imported once."""

import json
import sys
from pathlib import Path

from headway.core.codec import to_document
from headway.core.errors import HeadwayError
from headway.train.gang import train
from headway.train.setup import read_setup


def told(directory: Path) -> dict[str, object]:
    """What a run reports, why it began again, and how it failed."""
    reports: list[object] = []
    restarts: list[str] = []
    error = ""
    try:
        for report in train(
            read_setup(directory), started=lambda _: None, restarted=lambda fault: restarts.append(str(fault))
        ):
            reports.append(to_document(report))  # noqa: PERF401 - some are there when it fails
    except HeadwayError as fault:
        error = str(fault)
    return {"reports": reports, "restarts": restarts, "error": error}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        (Path(name) / "told.json").write_text(json.dumps(told(Path(name))))
