"""Structured logs: one line an event, the request id in every line."""

import contextvars
import json
import logging
import sys
import time

from headway.observe.log_thread import LogThread

request_id_var: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")
"""The request that the current task works for; empty outside of one."""


class _RequestIdFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(record, "request_id", ""):
            record.request_id = request_id_var.get()
        return True


class _JsonFormatter(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := getattr(record, "request_id", ""):
            line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _TextFormatter(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__(
            f"%(asctime)s.%(msecs)03d %(levelname)-7s {service} %(name)s [%(request_id)s] %(message)s",
            datefmt="%H:%M:%S",
        )


def configure_logging(service: str, *, level: str = "info", json_lines: bool = True) -> None:
    """Sends all logs to standard error as JSON lines, or as text for people."""
    handler = LogThread(sys.stderr)
    handler.setFormatter(_JsonFormatter(service) if json_lines else _TextFormatter(service))
    handler.addFilter(_RequestIdFilter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for noisy in ("httpx", "httpcore", "asyncio", "grpc"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
