"""What every part of a request's body has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """Types are not converted. Unknown fields are refused unless the reader says otherwise."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ModelRequest(Strict):
    """A body that asks a model for something."""

    model: str
    slo_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
