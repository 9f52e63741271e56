"""`models.yaml`: which models to place, under which names, and from where their latencies are known."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from headway.core.catalogue.located import Located, read_located
from headway.core.catalogue.quantity import Kind, parse_quantity
from headway.core.engine_args import check_engine
from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.placement_problem import TokenLengths

_MOST_COPIES = 10_000
_MOST_TOKENS = 10**8
_LEAST_CV, _MOST_CV = 1e-3, 1e3
_OF_ORIGIN = {
    "seq": "capture",
    "prompt": "generate",
    "output": "generate",
    "ttft": "generate",
    "tpot": "generate",
    "engine": "generate",
    "engine_args": "generate",
}
_FIELDS = ("name", "count", "profile", "capture", "generate", "dtype", "share", "slo", *_OF_ORIGIN)
_PROMPT, _OUTPUT = TokenLengths(mean=512.0), TokenLengths(mean=128.0)

_DTYPES = ("float16", "bfloat16", "float32")

T = TypeVar("T")


class ModelOrigin(StrEnum):
    """The source of a model's latencies."""

    PROFILE = "profile"
    """Stage profiles that were imported, by the name of their model."""
    CAPTURE = "capture"
    """A checkpoint directory, zoo:NAME or module:factory, whose operators are estimated on the cluster's device."""
    GENERATE = "generate"
    """The checkpoint directory of a language model: the steps of its engine are estimated on the cluster's device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One entry of a models file.

    Attributes:
        source: the name of the profiles' model, what to capture, or the language model's directory.
        seq: the tokens of a captured model's request; None for the model's own.
        dtype: that a captured model's float32 numbers are served in; None for float32. Of a language model: None for
            the checkpoint's.
        share, slo_s, prompt, output, ttft_s, tpot_s: see `ProblemModel`.
        engine, engine_args: see `ModelDeployment`; None as the model is served, or Headway's own.
        place: the entry's file and line, for faults that are found later.
    """

    name: str
    origin: ModelOrigin
    source: str
    seq: int | None
    dtype: str | None
    share: float
    slo_s: float | None
    place: str
    prompt: TokenLengths | None = None
    output: TokenLengths | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    engine: EngineKind | None = None
    engine_args: str | None = None

    @property
    def architecture(self) -> str:
        engine = "" if self.engine in (None, EngineKind.HEADWAY) else f"on {self.engine}"
        details = [self.source, f"{self.seq} tokens" if self.seq else "", self.dtype or "", engine]
        return ", ".join(filter(None, details))


def read_models_file(text: str, *, file: str) -> tuple[ModelEntry, ...]:
    """InvalidArgumentError names file, line and field."""
    document = read_located(text, file=file)
    _only(document, ("models",))
    if "models" not in document.fields:
        raise document.fault("lacks 'models'", hint="Write models: and a list of them, each with a name and a profile.")
    listed = document.fields["models"]
    entries = [entry for item in listed.items for entry in _read_entry(item)]
    if not entries:
        raise listed.fault("is empty", hint="Name a model at least.")
    names = [entry.name for entry in entries]
    for entry in entries:
        if names.count(entry.name) > 1:
            raise listed.fault(f"has the name '{entry.name}' twice", hint="Name each apart.")
    return tuple(entries)


def _read_entry(item: Located) -> list[ModelEntry]:
    """Reads an entry as as many models as its count says; with a count, each has its number in its name."""
    _only(item, _FIELDS)
    fields = item.fields
    origins = [origin for origin in ModelOrigin if origin in fields]
    if "name" not in fields or len(origins) != 1:
        raise item.fault(
            "should have a name, and either a profile, something to capture or a checkpoint that generates",
            hint="Write {name: code, profile: bert-1.3b}, {name: code, capture: zoo:bert-base} or "
            "{name: chat, generate: ./llama}.",
        )
    origin = origins[0]
    for field, wanted in _OF_ORIGIN.items():
        if field in fields and origin != wanted:
            kind = "captured models" if wanted == ModelOrigin.CAPTURE else "models that generate"
            raise fields[field].fault(f"is of {kind}", hint="Remove it.")
    if "dtype" in fields and origin is ModelOrigin.PROFILE:
        raise fields["dtype"].fault("is of models without profiles", hint="A profile was made for one; remove it.")
    generates = origin is ModelOrigin.GENERATE
    name = _filled(fields["name"])
    copies = _read(item, "count", lambda text: _whole(text, most=_MOST_COPIES), default=0)
    source = _filled(fields[origin])
    engine, engine_args = _engine(item)
    return [
        ModelEntry(
            name=each,
            origin=origin,
            source=source,
            seq=_read(item, "seq", _whole, default=None),
            dtype=_read(item, "dtype", _dtype, default=None),
            share=_read(item, "share", _positive, default=1.0),
            slo_s=_read(item, "slo", _seconds, default=None),
            prompt=_read(item, "prompt", _lengths, default=_PROMPT) if generates else None,
            output=_read(item, "output", _lengths, default=_OUTPUT) if generates else None,
            ttft_s=_read(item, "ttft", _seconds, default=None),
            tpot_s=_read(item, "tpot", _seconds, default=None),
            engine=engine,
            engine_args=engine_args,
            place=f"{item.file}, line {item.line}",
        )
        for each in ([f"{name}-{number}" for number in range(copies)] if copies else [name])
    ]


def _engine(item: Located) -> tuple[EngineKind | None, str | None]:
    engine = _read(item, "engine", _engine_kind, default=None)
    args = item.fields["engine_args"].text.strip() if "engine_args" in item.fields else None
    try:
        check_engine(engine or EngineKind.HEADWAY, args or "")
    except InvalidArgumentError as error:
        raise item.fields["engine_args"].fault(f"is wrong: {error.message.rstrip('.')}", hint=error.hint) from error
    return engine, args


def _read(item: Located, name: str, read: Callable[[str], T], *, default: T) -> T:
    if name not in item.fields:
        return default
    field = item.fields[name]
    try:
        return read(field.text)
    except ValueError as error:
        raise field.fault(str(error), hint="Correct the line.") from error


def _whole(text: str, *, most: int = 10**9) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ValueError(f"should be a whole number from 1 to {most}, not '{text}'")
    return int(text)


def _seconds(text: str) -> float:
    return parse_quantity(text, Kind.TIME)


def _lengths(text: str) -> TokenLengths:
    """'512', or '512 cv 0.8'."""
    mean, varies, cv = text.partition("cv")
    try:
        lengths = TokenLengths(mean=_positive(mean), cv=_positive(cv) if varies else 0.0)
    except ValueError:
        raise ValueError(f"should be tokens, as 512 or '512 cv 0.8', not '{text}'") from None
    if lengths.mean > _MOST_TOKENS or (varies and not _LEAST_CV <= lengths.cv <= _MOST_CV):
        raise ValueError(
            f"should be at most {_MOST_TOKENS} tokens, and their cv from {_LEAST_CV:g} to {_MOST_CV:g}, not '{text}'"
        )
    return lengths


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"should be a positive number, not '{text}'")
    return number


def _engine_kind(text: str) -> EngineKind:
    if text == EngineKind.VLLM_SERVER:
        raise ValueError(f"is {text}, whose models are where their servers are: nothing is placed")
    if text not in tuple(EngineKind):
        raise ValueError(f"should be {EngineKind.HEADWAY} or {EngineKind.VLLM}, not '{text}'")
    return EngineKind(text)


def _dtype(text: str) -> str:
    if text not in _DTYPES:
        raise ValueError(f"should be {' or '.join(_DTYPES)}, not '{text}'")
    return text


def _filled(field: Located) -> str:
    if not field.text.strip():
        raise field.fault("is empty", hint="Fill it in.")
    return field.text.strip()


def _only(item: Located, names: tuple[str, ...]) -> None:
    for name, field in item.fields.items():
        if name not in names:
            raise field.fault("is unknown", hint=f"Known are {', '.join(names)}.")
