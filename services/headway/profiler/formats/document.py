"""A JSON document in which errors name the path of the field."""

import json
import math
import zlib
from dataclasses import dataclass
from typing import Any

from headway.core.errors import InvalidArgumentError

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31
_MAX_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class Field:
    """A value of the document and its path: 'models.bert-1.3b.configs.pp1_op2'."""

    value: Any
    path: str

    def fault(self, problem: str, *, hint: str = "Correct the file.") -> InvalidArgumentError:
        """Makes an error whose message goes on from the path with `problem`: 'should be ...'."""
        return InvalidArgumentError(f"{self.path or 'The document'} {problem}.", hint=hint, field=self.path)

    def __getitem__(self, name: str) -> "Field":
        """The field of that name; InvalidArgumentError where it is missing."""
        fields = self._expect(dict, "an object")
        if name not in fields:
            raise self.fault(f"lacks '{name}'", hint=f"It has {', '.join(fields) or 'nothing'}.")
        return Field(fields[name], f"{self.path}.{name}" if self.path else name)

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def only(self, *names: str) -> "Field":
        """Returns itself; InvalidArgumentError where it has fields of other names."""
        for name in self._expect(dict, "an object"):
            if name not in names:
                raise self.fault(f"has an unknown field '{name}'", hint=f"Known are {', '.join(names)}.")
        return self

    def fields(self) -> "dict[str, Field]":
        """All fields by name; InvalidArgumentError where there are none."""
        if not self._expect(dict, "an object"):
            raise self.fault("is empty")
        return {name: self[name] for name in self.value}

    def items(self, *, length: int | None = None) -> "list[Field]":
        values = self._expect(list, "a list")
        if length is not None and len(values) != length:
            raise self.fault(f"should have {length} values, not {len(values)}")
        return [Field(value, f"{self.path}[{number}]") for number, value in enumerate(values)]

    def text(self) -> str:
        return str(self._expect(str, "a text"))

    def count(self, *, least: int = 1) -> int:
        """The value as a whole number, also where it is written as 8.0."""
        number = self._number()
        if number < least or number != int(number):
            raise self.fault(f"should be a whole number from {least}, not {self.value!r}")
        return int(number)

    def seconds(self, *, may_be_zero: bool = False) -> float:
        number = self._number()
        if number < 0 or (number == 0 and not may_be_zero):
            raise self.fault(f"should be a time above 0, not {self.value!r}", hint="Measure it again.")
        return number

    def _number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.fault(f"should be a number, not {self.value!r}")
        try:
            number = float(self.value)
        except OverflowError:  # of whole numbers of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise self.fault(f"should be finite, not {self.value!r}", hint="Measure it again.")
        return number

    def _expect(self, kind: type, name: str) -> Any:
        if not isinstance(self.value, kind):
            raise self.fault(f"should be {name}, not {type(self.value).__name__}")
        return self.value


def read_document(content: bytes) -> Field:
    """Reads JSON, plain or compressed by gzip; InvalidArgumentError where it is neither."""
    try:
        text = _decompress(content) if content.startswith(_GZIP_MAGIC) else content
        return Field(json.loads(text, object_pairs_hook=_without_twins), "")
    except zlib.error as error:
        raise Field(None, "").fault(f"is no complete gzip file: {error}") from error
    except (ValueError, RecursionError) as error:
        raise Field(None, "").fault(f"is no valid JSON: {error}") from error


def _decompress(content: bytes) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    text = stream.decompress(content, _MAX_BYTES)
    if stream.unconsumed_tail:
        raise Field(None, "").fault(f"is larger than {_MAX_BYTES // 1024**2} MiB", hint="Import it in parts.")
    if not stream.eof:
        raise zlib.error("it ends too soon")
    return text


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Field(None, "").fault(f"has '{twice}' twice in one object", hint="Keep one.")
    return fields
