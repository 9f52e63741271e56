"""The base class of every part of a request's body."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Strict(BaseModel):
    """Types are not converted, and null means the default. Of unknown fields `read_request` takes note."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: part for name, part in value.items() if part is not None}


class ModelRequest(Strict):
    """A body that asks a model for something."""

    model: str
    slo_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
