"""What a release leaves on a real node, and another one in its place whose values have its models."""

import pytest

from tests.cluster.chart import CHART, VALUES
from tests.cluster.cluster import NAMESPACE, NOT_OURS, objects_left
from tests.cluster.installation import Installation
from tests.cluster.load import MODEL

pytestmark = pytest.mark.timeout(900)

_CLAIM = ("--set=modelStorage.hostPath=null", "--set=modelStorage.existingClaim=models")


def test_all_is_gone_but_for_what_is_to_be_kept(installation: Installation) -> None:
    plane = installation.plane
    _helm(installation, "uninstall", "headway", "--wait", "--timeout=5m")
    kept = NOT_OURS | {"persistentvolumeclaim/headway-redis"}
    plane.wait(lambda: objects_left(plane) == kept, "all else is gone")
    assert plane.kubectl("get", "crd", "--output=name").stdout.endswith("/modeldeployments.serving.headway.dev\n")
    declared = plane.kubectl("get", "md", "--namespace", NAMESPACE, "--output=name").stdout.split()
    assert declared in ([], [f"modeldeployment.serving.headway.dev/{MODEL}"])


def test_a_release_with_models_in_its_values_passes_its_own_test(installation: Installation) -> None:
    _helm(
        installation,
        "install",
        "files",
        str(CHART),
        f"--values={VALUES['emulated']}",
        *_CLAIM,
        "--wait",
        "--timeout=9m",
    )
    _helm(installation, "test", "files", "--timeout=5m")
    _helm(installation, "uninstall", "files", "--wait", "--timeout=5m")


def _helm(installation: Installation, *arguments: str) -> None:
    result = installation.plane.helm(*arguments, f"--namespace={NAMESPACE}")
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\n{installation.pods.logs()}"
