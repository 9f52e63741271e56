"""Times as people read them."""

from datetime import UTC, datetime


def local_time(at_s: float) -> str:
    """'2026-11-25 04:12'"""
    return datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
