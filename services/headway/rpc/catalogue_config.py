"""Settings of processes that look hardware up."""

from pathlib import Path

from pydantic import field_validator

from headway.core.catalogue import read_catalogue
from headway.core.errors import HeadwayError
from headway.rpc.config import ProcessConfig


class CatalogueConfig(ProcessConfig):
    """Adds the setting `--catalogue` (HEADWAY_CATALOGUE) to a service's configuration."""

    catalogue: Path | None = None
    """YAML file of hardware, laid over the built-in catalogue."""

    @field_validator("catalogue")
    @classmethod
    def _readable(cls, path: Path | None) -> Path | None:
        try:
            read_catalogue(path)
        except HeadwayError as error:
            raise ValueError(str(error)) from None
        return path
