"""The base class of every part of a request's body."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """Types are not converted. Of unknown fields `read_request` takes note."""

    model_config = ConfigDict(strict=True, frozen=True)


class ModelRequest(Strict):
    """A body that asks a model for something."""

    model: str
    slo_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
