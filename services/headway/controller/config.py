"""Settings of the controller process."""

from pathlib import Path

from pydantic import Field

from headway.rpc.catalogue_config import CatalogueConfig


class ControllerConfig(CatalogueConfig):
    """The settings of a controller: the flags of `python -m headway.controller`."""

    state_dir: Path = Field(default_factory=lambda: Path.home() / ".local" / "state" / "headway" / "default")
    """Directory of the stack's state; logs go to its `logs` folder."""
    deployment: Path | None = None
    """YAML file of what to serve, on workers of cells (`python -m headway.controller.cell`) that something else starts,
    such as a cluster. Without it the deployment is that of `headway up`, and the controller starts every process."""
