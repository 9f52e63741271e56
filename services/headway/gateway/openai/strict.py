"""What every part of a request's body has in common."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Types are not converted, and unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ModelRequest(Strict):
    """A body that asks a model for something."""

    model: str
