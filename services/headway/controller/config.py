"""Settings of the controller process."""

from pathlib import Path

from pydantic import Field

from headway.rpc.catalogue_config import CatalogueConfig


class ControllerConfig(CatalogueConfig):
    """The settings of a controller: the flags of `python -m headway.controller`."""

    state_dir: Path = Field(default_factory=lambda: Path.home() / ".local" / "state" / "headway" / "default")
    """Directory of the stack's state; logs go to its `logs` folder."""
