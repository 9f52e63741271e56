"""Shows the decisions of re-planning."""

import time

from rich.console import Group, RenderableType
from rich.text import Text

from headway.core.replanning import ReplanningDecision, ReplanningStatus
from headway.core.units import format_duration

_MOST_SHOWN = 10


def decision_text(decision: ReplanningDecision) -> str:
    requests = f" ({decision.num_requests} requests)" if decision.num_requests else ""
    return f"{decision.verdict}: {decision.reason}{requests}"


def status_view(status: ReplanningStatus) -> RenderableType:
    """The duty, when it is next, and the last decisions."""
    duty = status.replacement
    if duty is None:
        head = "Nothing is planned again by itself; `headway replan --every 1h` has it done."
    else:
        wait_s = status.next_at_s - time.time()
        when = f"in {format_duration(wait_s)}" if wait_s > 0 else "as soon as the stack is ready"
        head = (
            f"Every {format_duration(duty.every_s)} for the traffic of {format_duration(duty.window_s)}, where "
            f"{100 * duty.min_gain:g} points are gained: {len(duty.models)} models; next {when}."
        )
    return Group(
        Text(head),
        *(
            Text(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(each.decided_at_s))}  {decision_text(each)}")
            for each in status.decisions[:_MOST_SHOWN]
        ),
    )
