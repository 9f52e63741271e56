"""One turn of the search for backends, as a job: request and result are documents of `BackendSearch` and
`BackendAnswer`."""

import base64
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headway.core.backend_search import GRAPH, PROGRAM, BackendSearch
from headway.core.codec import from_document, to_document
from headway.core.graph_file import graph_of
from headway.core.program import Program
from headway.core.search_progress import SearchProgress
from headway.planner.backends.fusion import known_fusions
from headway.planner.backends.search import answer

_FILES = "files"


def run(
    request: dict[str, Any],
    *,
    report: Callable[[SearchProgress], None],
    should_stop: Callable[[], bool],  # noqa: ARG001 - a turn is short
    resume: dict[str, Any] | None,  # noqa: ARG001 - as above
) -> dict[str, Any]:
    """Says what to measure next, or what is best; see `kinds.RunSearch`. Errors are those of `answer`."""
    began_s = time.monotonic()
    files = request.pop(_FILES)
    search = from_document(BackendSearch, request)
    graph = graph_of(base64.b64decode(files[GRAPH]))
    program = from_document(Program, json.loads(base64.b64decode(files[PROGRAM])))
    report(SearchProgress(phase="placing operators on backends"))
    found = answer(search, graph, program, known_fusions())
    if found.plan is not None:
        found = replace(found, plan=replace(found.plan, search_s=time.monotonic() - began_s))
    return to_document(found)  # type: ignore[no-any-return]
