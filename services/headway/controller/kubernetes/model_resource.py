"""A model that is declared as a resource."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from headway.controller.deployment_file import ModelDocument, faults_of, read_model
from headway.controller.kubernetes.api import GROUP, ResourceKind
from headway.controller.kubernetes.model_volume import ModelVolume
from headway.core.errors import InvalidArgumentError
from headway.core.model_uri import ModelUri, is_model_uri
from headway.core.plan.serving import ModelDeployment

APPROVAL = f"{GROUP}/apply"
"""The annotation of a resource that names the plan which may be applied for it."""

MODEL_DEPLOYMENT = ResourceKind(kind="ModelDeployment", plural="modeldeployments")

_OF_THE_RESOURCE = ("servedName", "priority", "apply", "uri", "revision", "sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResource:
    """A ModelDeployment, as the API server told of it.

    Attributes:
        created_at: in UTC, as text; of two that cannot both be served the older one is.
        approved: the id of the plan that may be applied for it.
        version: of the object, status included.
    """

    name: str
    uid: str
    generation: int
    created_at: str
    version: str
    approved: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @classmethod
    def of(cls, resource: Mapping[str, Any]) -> "ModelResource":
        metadata = resource["metadata"]
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            created_at=metadata["creationTimestamp"],
            version=metadata["resourceVersion"],
            approved=metadata.get("annotations", {}).get(APPROVAL, ""),
            spec=resource.get("spec", {}),
            status=resource.get("status", {}),
        )

    @property
    def model(self) -> str:
        """The name that clients ask for."""
        return str(self.spec.get("servedName") or self.name)

    @property
    def priority(self) -> int:
        return int(self.spec.get("priority", 0))

    @property
    def is_manual(self) -> bool:
        """Whether a change of it waits for approval."""
        return str(self.spec.get("apply")) == "Manual"

    @property
    def claim(self) -> tuple[int, str, str]:
        """Sorts those with the better claim first: a higher priority, or an older one."""
        return (-self.priority, self.created_at, self.name)

    @property
    def fetched_from(self) -> ModelUri | None:
        """Where its files come from; None where they are on the volume. InvalidArgumentError where that is wrong."""
        if not is_model_uri(uri := str(self.spec.get("uri", ""))):
            return None
        return ModelUri.parse(uri, revision=str(self.spec.get("revision", "")))

    def read(self, *, volume: ModelVolume, is_emulated: bool) -> ModelDeployment:
        """The model with what its checkpoint says. Reads files. What is fetched has to be there, and is taken as it was
        when it was fetched.

        Raises:
            InvalidArgumentError: a field is wrong, or the files are others than the digest says.
            NotFoundError: the checkpoint's directory, or a file in it, is missing.
        """
        fields = {_snake(name): value for name, value in self.spec.items() if name not in _OF_THE_RESOURCE}
        for name in ("slo", "replicas"):
            if name in fields:
                fields[name] = {_snake(field): value for field, value in fields[name].items()}
        if (place := self.fetched_from) is not None:
            fields["path"] = volume.fetched_path(place)
        elif "uri" in self.spec:
            fields["path"] = volume.path_of(self.spec["uri"])
        try:
            document = ModelDocument.model_validate({"name": self.model, **fields})
        except ValidationError as error:
            raise InvalidArgumentError(faults_of(error), hint="Correct the resource.", field="spec") from None
        if "sha256" in self.spec and place is None:
            volume.check(document.path, sha256=self.spec["sha256"])
        return read_model(document, is_emulated=is_emulated)


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)
