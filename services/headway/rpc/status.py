"""HeadwayError to gRPC status and back, with the whole error in the trailing metadata."""

import re

import grpc
from google.protobuf.message import DecodeError

from headway.core.errors import (
    ERROR_BY_CODE,
    DeadlineExceededError,
    ErrorCode,
    HeadwayError,
    InternalError,
    UnavailableError,
)
from headway.core.tls_files import TlsFiles
from headway.v1 import common_pb2

ERROR_METADATA_KEY = "headway-error-bin"

STATUS_BY_CODE = {code: grpc.StatusCode[code.name] for code in ErrorCode}
_REFUSED_BY_US = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)|(Hostname Verification Check failed)")
_REFUSED_BY_THEM = re.compile(r"failed to connect.*(Secure read failed|Socket closed|reset by peer|Broken pipe)")
_LOST_STATUS = "Internal error from Core"
"""What grpc.aio says instead of the call's own status where the call ended while a message was being sent."""

_CODE_BY_STATUS = {status: code for code, status in STATUS_BY_CODE.items()}


def error_to_pb(error: HeadwayError) -> common_pb2.ErrorDetail:
    return common_pb2.ErrorDetail(
        code=error.code,
        message=error.message,
        hint=error.hint,
        field=error.field,
        retry_after_s=error.retry_after_s,
    )


def error_from_pb(detail: common_pb2.ErrorDetail) -> HeadwayError:
    kind = ERROR_BY_CODE.get(ErrorCode(detail.code), InternalError)
    retry_after_s = detail.retry_after_s if detail.HasField("retry_after_s") else None
    return kind(detail.message, hint=detail.hint, field=detail.field, retry_after_s=retry_after_s)


def carries_error(error: grpc.aio.AioRpcError) -> bool:
    """Whether the service itself raised it, rather than the transport."""
    return any(key == ERROR_METADATA_KEY for key, _ in error.trailing_metadata() or ())


def error_from_rpc(error: grpc.RpcError, *, tls: TlsFiles | None = None) -> HeadwayError:
    """The HeadwayError that the server raised, or one that describes the transport's own failure.

    Args:
        tls: the files that the call was encrypted by, where the caller is told which; None where it was not.
    """
    assert isinstance(error, grpc.aio.AioRpcError | grpc.Call)
    return _carried(error) or _of_transport(error, tls)


def _carried(error: grpc.aio.AioRpcError | grpc.Call) -> HeadwayError | None:
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_METADATA_KEY and isinstance(value, bytes):
            try:
                return error_from_pb(common_pb2.ErrorDetail.FromString(value))
            except (DecodeError, ValueError):
                return None
    return None


def _of_transport(error: grpc.aio.AioRpcError | grpc.Call, tls: TlsFiles | None) -> HeadwayError:
    code = _CODE_BY_STATUS.get(error.code(), ErrorCode.INTERNAL)
    details = error.details() or error.code().name
    if code is ErrorCode.UNAVAILABLE or details == _LOST_STATUS:
        if (refused := _REFUSED_BY_US.search(details)) is not None:
            return _unknown_to_us(refused[1] or refused[2], tls)
        if tls is not None and _REFUSED_BY_THEM.search(details) is not None:
            return _unknown_to_them(tls)
        return UnavailableError(f"The service cannot be reached ({details}).", hint="Try again in a moment.")
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        # A port of a process that died is any other's a moment later.
        return UnavailableError(
            f"What answers at the service's address does not know this call ({details}).",
            hint="Try again in a moment. If it stays so, another program or another version of Headway listens there.",
        )
    if code is ErrorCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError(
            f"The service has not answered in time ({details}).",
            hint="It may yet do what it was asked for: look before you ask again. Its log says what holds it up.",
        )
    return ERROR_BY_CODE[code](details)


def _unknown_to_us(reason: str, tls: TlsFiles | None) -> UnavailableError:
    ca = "of HEADWAY_TLS_CA" if tls is None else tls.ca
    return UnavailableError(
        f"The service's certificate is not accepted by those in the file {ca} ({reason}).",
        hint="Compare what its certificate is signed by with that file, and until when it is valid.",
    )


def _unknown_to_them(tls: TlsFiles) -> UnavailableError:
    cert = tls.cert or "of HEADWAY_TLS_CERT, which is not set"
    return UnavailableError(
        f"The service ended the connection instead of accepting a certificate; ours is in the file {cert}.",
        hint="It has to be signed by an authority that the service knows, and valid today.",
    )
