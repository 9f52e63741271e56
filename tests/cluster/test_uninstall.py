"""What an uninstalled release leaves: what is annotated to be kept, and nothing else."""

from tests.cluster.cluster import NAMESPACE, NOT_OURS, Cluster, objects_left, upgrade

_DEFINITION = "customresourcedefinition.apiextensions.k8s.io/modeldeployments.serving.headway.dev"


def _uninstall(cluster: Cluster) -> None:
    result = cluster.plane.helm("uninstall", "headway", "--namespace", NAMESPACE, "--wait", "--timeout=2m")
    assert result.returncode == 0, result.stderr


def test_the_definition_and_what_was_declared_are_kept(cluster: Cluster) -> None:
    cluster.declare("kept")
    assert len(objects_left(cluster.plane)) > 20
    _uninstall(cluster)
    cluster.plane.wait(lambda: objects_left(cluster.plane) == NOT_OURS, "all else is gone")
    assert cluster.plane.kubectl("get", "crd", "--output=name").stdout.split() == [_DEFINITION]
    kept = cluster.plane.kubectl("get", "md", "--namespace", NAMESPACE, "--output=name").stdout
    assert "modeldeployment.serving.headway.dev/kept" in kept


def test_a_release_that_is_installed_again_takes_over_what_was_kept(cluster: Cluster) -> None:
    upgrade(cluster.plane, "--set=redis.bundled.storage.keep=true")
    assert "modeldeployment" in cluster.plane.kubectl("get", "md", "--namespace", NAMESPACE, "--output=name").stdout
    _uninstall(cluster)
    kept = NOT_OURS | {"persistentvolumeclaim/headway-redis"}
    cluster.plane.wait(lambda: objects_left(cluster.plane) == kept, "all is gone but for the claim")


def test_with_the_definition_its_resources_go_and_nothing_holds_the_namespace(cluster: Cluster) -> None:
    for deleted in (_DEFINITION, f"namespace/{NAMESPACE}"):
        result = cluster.plane.kubectl("delete", deleted, "--timeout=60s")
        assert result.returncode == 0, result.stderr
