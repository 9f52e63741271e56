"""Names of requests: the client's own where it gives one."""

import random
import re

from headway.core.errors import InvalidArgumentError

_ACCEPTED = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def new_request_id() -> str:
    return f"req-{random.getrandbits(128):032x}"


def check_request_id(request_id: str) -> str:
    """The same; InvalidArgumentError where it would not fit logs and headers."""
    if _ACCEPTED.fullmatch(request_id) is None:
        raise InvalidArgumentError(
            "The request id is not acceptable.",
            hint="Use up to 128 letters, digits and ._:/+=@- , or send none.",
            field="x-request-id",
        )
    return request_id


def job_id(request_id: str) -> str:
    """Unique even where clients use a request id twice: routers and workers tell sequences apart by it."""
    return f"{request_id}.{random.getrandbits(32):08x}"
