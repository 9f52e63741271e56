"""Links of device meshes beside a count of what crosses which port, device by device."""

from dataclasses import replace
from itertools import product

import pytest

from headway.core.cluster import Fabric
from headway.core.device_mesh import (
    DeviceMesh,
    DeviceMeshLinks,
    Submesh,
    crossing_s,
    handover_s,
    logical_shapes,
    submeshes,
)
from headway.core.training_cluster import NodeGroup

NODES = NodeGroup(
    device="V100-16",
    num_nodes=4,
    devices_per_node=4,
    memory_bytes=16 * 10**9,
    link=Fabric(latency_s=1e-6, bytes_per_s=100e9),
    network=Fabric(latency_s=1e-5, bytes_per_s=2e9),
    num_ports=2,
)
MESHES = [DeviceMesh(submesh, shape) for submesh in submeshes(NODES) for shape in logical_shapes(submesh)]


def _groups(mesh: DeviceMesh, axis: int) -> list[list[int]]:
    """The devices of each group along an axis, by their places in the mesh; nodes follow each other."""
    outer, inner = mesh.shape
    if axis == 0:
        return [[row * inner + column for row in range(outer)] for column in range(inner)]
    return [[row * inner + column for column in range(inner)] for row in range(outer)]


def _second_per_byte(mesh: DeviceMesh, axis: int, *, is_exchange: bool) -> float:
    """Of each device's byte: the slower of a device's link and of the ports that a node's devices share."""
    per_node = mesh.submesh.devices_per_node
    uses_link, leaving = False, dict.fromkeys(range(mesh.submesh.num_nodes), 0.0)
    for group in _groups(mesh, axis):
        nodes = [device // per_node for device in group]
        following = zip(nodes, [*nodes[1:], nodes[0]], strict=True)
        pairs = [(a, b) for i, a in enumerate(nodes) for k, b in enumerate(nodes) if i != k]
        share = 1 / (len(group) - 1) if is_exchange and len(group) > 1 else 1.0
        for source, target in pairs if is_exchange else following:
            if source != target:
                leaving[source] += share
            elif len(group) > 1:
                uses_link = True
    inside = 1 / NODES.link.bytes_per_s if uses_link else 0.0
    return max(inside, max(leaving.values()) / (NODES.num_ports * NODES.network.bytes_per_s))


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: f"{mesh.submesh}-{mesh}")
def test_a_byte_takes_what_the_busiest_port_takes(mesh: DeviceMesh) -> None:
    links = DeviceMeshLinks(NODES, mesh)
    for axis, operation in product(range(2), ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")):
        if mesh.shape[axis] == 1:
            continue
        expected = _second_per_byte(mesh, axis, is_exchange=operation == "all_to_all")
        assert links.second_per_byte(operation, axis) == pytest.approx(expected)
        assert links.seconds(operation, 10**6, axis=axis) == pytest.approx(links.latency_s(axis) + 10**6 * expected)


def test_latency_is_the_networks_where_an_axis_leaves_a_node() -> None:
    mesh = DeviceMesh(Submesh(2, 4), (4, 2))
    links = DeviceMeshLinks(NODES, mesh)
    assert links.latency_s(0) == NODES.network.collective_s(0, num_ranks=4)
    assert links.latency_s(1) == NODES.link.collective_s(0, num_ranks=2)


def test_submeshes_are_parts_of_a_node_or_whole_nodes() -> None:
    assert [str(each) for each in submeshes(NODES)] == ["1x1", "1x2", "1x4", "2x4", "3x4", "4x4"]
    assert list(logical_shapes(Submesh(3, 4))) == [(12, 1), (6, 2), (3, 4), (1, 12)]


def test_parts_of_a_node_divide_it_so_that_stages_fill_nodes() -> None:
    six = replace(NODES, devices_per_node=6)
    assert [str(each) for each in submeshes(six)][:3] == ["1x1", "1x2", "1x6"]


def test_between_groups_the_slower_network_counts_and_the_later_answer() -> None:
    other = replace(NODES, network=Fabric(latency_s=5e-5, bytes_per_s=0.5e9))
    assert crossing_s(NODES, other, Submesh(1, 2), 0) == 0.0
    ports = 2 * other.num_ports
    expected_s = 5e-5 + 4e9 / (ports * 0.5e9)
    assert crossing_s(NODES, other, Submesh(2, 4), 4e9) == crossing_s(other, NODES, Submesh(2, 4), 4e9) == expected_s


def test_a_handover_shares_links_inside_a_node_and_ports_between_nodes() -> None:
    assert handover_s(NODES, Submesh(1, 2), 0) == 0.0
    assert handover_s(NODES, Submesh(1, 2), 4e9) == pytest.approx(1e-6 + 4e9 / 2 / 100e9)
    assert handover_s(NODES, Submesh(2, 4), 4e9) == pytest.approx(1e-5 + 4e9 / 4 / 2e9)
