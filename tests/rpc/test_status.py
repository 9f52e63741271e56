"""What a caller makes of a call that failed."""

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from headway.core.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    HeadwayError,
    InternalError,
    UnavailableError,
)
from headway.rpc.status import ERROR_METADATA_KEY, error_from_rpc, error_to_pb

REFUSAL = FailedPreconditionError("No.", hint="Ask another.", field="model")
CARRIED = Metadata((ERROR_METADATA_KEY, error_to_pb(REFUSAL).SerializeToString()))
BROKEN = Metadata((ERROR_METADATA_KEY, b"\xff"))


@pytest.mark.parametrize(
    ("status", "metadata", "details", "kind"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, CARRIED, "No.", FailedPreconditionError),
        (grpc.StatusCode.FAILED_PRECONDITION, BROKEN, "No.", FailedPreconditionError),
        (grpc.StatusCode.UNAVAILABLE, Metadata(), "failed to connect", UnavailableError),
        (grpc.StatusCode.INTERNAL, Metadata(), "ValueError: a fault", InternalError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Metadata(), "Deadline Exceeded", DeadlineExceededError),
        # Another process has the port of one that died.
        (grpc.StatusCode.UNIMPLEMENTED, Metadata(), "Method not found!", UnavailableError),
        # The call ended while a message was sent: whoever can go elsewhere does.
        (grpc.StatusCode.INTERNAL, Metadata(), "Internal error from Core", UnavailableError),
    ],
)
def test_a_status_becomes_the_error_it_stands_for(
    status: grpc.StatusCode, metadata: Metadata, details: str, kind: type[HeadwayError]
) -> None:
    error = error_from_rpc(AioRpcError(status, Metadata(), metadata, details))
    assert type(error) is kind
    assert details in error.message
    assert error.hint == (REFUSAL.hint if metadata is CARRIED else error.hint)
