"""The search for a placement, as a job: request and result are documents of `PlacementSearch` and `PlacementPlan`."""

import base64
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from headway.core.codec import from_document
from headway.core.errors import InternalError
from headway.core.placement_search import BestPlacement, PlacementSearch
from headway.core.plan.document import to_plan_document
from headway.core.plan.serving import plan_id_at
from headway.core.search_progress import SearchProgress
from headway.planner.certify.placement import find_placement_violations
from headway.planner.executors import search_executor
from headway.planner.placement.planning.plan import make_placement_plan


def run(
    request: dict[str, Any],
    *,
    report: Callable[[SearchProgress], None],
    should_stop: Callable[[], bool],
    resume: dict[str, Any] | None,
) -> dict[str, Any]:
    """Searches a placement and certifies it; see `kinds.RunSearch`. Errors are those of `make_placement_plan`, and of
    `search_executor`."""
    search, now_s = from_document(PlacementSearch, request), time.time()
    with search_executor(search.processes, search.ray) as executor:
        plan = make_placement_plan(
            search.problem,
            contents(search.files),
            plan_id=plan_id_at(now_s, nonce=uuid.uuid4().hex[:6]),
            created_at_s=now_s,
            report=report,
            should_stop=should_stop,
            executor=executor,
            resume=None if resume is None else from_document(BestPlacement, resume).placement,
        )
    if violations := find_placement_violations(plan):
        raise InternalError(f"The placement that was found is not valid: {violations[0]}")
    return to_plan_document(plan)


def contents(files: Mapping[str, str]) -> dict[str, bytes]:
    """Files by name, out of base64."""
    return {name: base64.b64decode(content) for name, content in files.items()}
