"""A real node: pods are containers with addresses of their own, and the slim image runs in a restricted namespace."""

import os

import pytest
import redis

from tests.cluster.cluster import make_namespace
from tests.cluster.containers import Containers, restricted_pod
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import Node

pytestmark = pytest.mark.timeout(900)

_COMMAND = ["python", "-m", "headway.store.serve_redis", "--dir", "/tmp"]


def test_a_container_whose_first_process_is_killed_is_started_again(real_node: tuple[ControlPlane, Node]) -> None:
    plane, here = real_node
    make_namespace(plane, "pausing")
    plane.create("/api/v1/namespaces/pausing/pods", restricted_pod("pause", {"image": "headway-pause:1"}))
    pods = Containers(plane, "pausing")
    plane.wait(pods.are_ready, "the pod is ready")
    [pod] = pods.all()
    os.kill(here.first_process(pod.container_id), 9)
    plane.wait(lambda: [each.num_starts for each in pods.all() if each.is_ready] == [2], "it is started again")


@pytest.mark.usefixtures("image")
def test_the_slim_image_serves_at_the_address_of_a_service(real_node: tuple[ControlPlane, Node]) -> None:
    """As nobody in particular, without capabilities, on a file system that it cannot write to."""
    plane, _ = real_node
    make_namespace(plane, "storing")
    probe = {"tcpSocket": {"port": 6379}, "periodSeconds": 1}
    container = {"image": "headway:0.1.0", "command": _COMMAND, "readinessProbe": probe}
    plane.create("/api/v1/namespaces/storing/pods", restricted_pod("store", container))
    ports = [{"port": 80, "targetPort": 6379}]
    service = {"metadata": {"name": "store"}, "spec": {"selector": {"app": "store"}, "ports": ports}}
    address = plane.create("/api/v1/namespaces/storing/services", service)["spec"]["clusterIP"]
    plane.wait(Containers(plane, "storing").are_ready, "the pod is ready")
    client = redis.Redis(address, 80, socket_timeout=5)
    plane.wait(lambda: _answers(client), "the Service's address answers")


def _answers(client: "redis.Redis") -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
