"""Settings of the controller process."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from headway.rpc.catalogue_config import CatalogueConfig


class ControllerConfig(CatalogueConfig):
    """The settings of a controller: the flags of `python -m headway.controller`."""

    state_dir: Path = Field(default_factory=lambda: Path.home() / ".local" / "state" / "headway" / "default")
    """Directory of the stack's state; logs go to its `logs` folder."""
    deployment: Path | None = None
    """YAML file of what to serve, on workers of cells (`python -m headway.controller.cell`) that something else starts,
    such as a cluster. Without it the deployment is that of `headway up`, and the controller starts every process."""
    models_from_resources: bool = False
    """Serve the ModelDeployments of the pod's namespace in Kubernetes, instead of models in the deployment's file."""
    models_dir: Path = Path("/models")
    """Directory that every pod has the models in."""
    models_claim: str = ""
    """The PersistentVolumeClaim that this is of, as `pvc://CLAIM/...` names it; empty where it is of none."""
    cell_template: Path | None = None
    """YAML file of what the cells of all WorkerPools have in common: then the controller makes their pods, and workers
    in the deployment's file do not count. Without it something else starts them."""
    fetch_template: Path | None = None
    """YAML file of what the jobs have in common that fetch models which resources declare by hf://, s3:// or oci://.
    Without it such models are refused."""
    service_account_dir: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    """Directory with the token, ca.crt and namespace that the API server is called with."""

    @model_validator(mode="after")
    def _has_workers(self) -> Self:
        if self.models_from_resources and self.deployment is None:
            raise ValueError("--models-from-resources needs --deployment, which says on how many workers to wait")
        if self.fetch_template is not None and not self.models_from_resources:
            raise ValueError("--fetch-template needs --models-from-resources: only these name models to fetch")
        if self.cell_template is not None and not self.models_from_resources:
            raise ValueError(
                "--cell-template needs --models-from-resources: pools grow and shrink with what they serve"
            )
        return self
