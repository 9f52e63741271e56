"""A HeadwayError as a document: what a child process tells its caller, and what a failed job keeps."""

from dataclasses import dataclass

from headway.core.errors import ERROR_BY_CODE, ErrorCode, HeadwayError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fields as those of `HeadwayError`."""

    code: ErrorCode
    message: str
    hint: str = ""
    field: str = ""

    @classmethod
    def of(cls, error: HeadwayError) -> "Fault":
        return cls(code=error.code, message=error.message, hint=error.hint, field=error.field)

    def raised(self) -> HeadwayError:
        return ERROR_BY_CODE[self.code](self.message, hint=self.hint, field=self.field)
