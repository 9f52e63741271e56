"""One line of a log, as the processes of a stack write them."""

import json
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """An event, or a line that is no JSON (a native library's, a crash's).

    Attributes:
        time: ISO 8601 in UTC with milliseconds, so that text order is time order; that of the line before where the
            line has none of its own.
        raw: the line as it stands in the file.
    """

    raw: str
    service: str
    time: str = ""
    level: str = ""
    message: str = ""
    request_id: str = ""
    exception: str = ""


def parse_line(raw: str, *, service: str, after: str = "") -> LogLine:
    """Reads one line of a log. `service` names the log file; `after` is the time of the line before."""
    plain = LogLine(raw=raw, service=service, time=after, message=raw)
    if not raw.startswith("{"):
        return plain
    try:
        document = json.loads(raw)
    except ValueError:
        return plain
    return replace(
        plain,
        time=str(document.get("time", after)),
        level=str(document.get("level", "")),
        message=str(document.get("message", raw)),
        request_id=str(document.get("request_id", "")),
        exception=str(document.get("exception", "")),
    )
