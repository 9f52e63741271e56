"""The catalogue of hardware: what it holds, how a user's file changes it, and how faults are told."""

from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.catalogue import Curve, Figure, Provenance, built_in_catalogue, parse_catalogues, read_catalogue
from headway.core.catalogue.quantity import Kind, format_quantity, parse_quantity
from headway.core.catalogue.reader import BUILT_IN
from headway.core.cluster import Hardware
from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError, NotFoundError

BUILT_IN_TEXT = BUILT_IN.read_text()
NEW_DEVICE = """
devices:
  Toy:
    source: "a drawing"
    kind: gpu
    names: [Toy, "H100 Toy"]
    memory: 1 GiB
    bandwidth: 8 Gbit/s
    peak: {float16: 1 GFLOP/s}
    link: PCIe 4
    practice: gpu
"""


def figures_in(value: Any) -> list[Figure | Curve]:
    if isinstance(value, Figure | Curve):
        return [value]
    if isinstance(value, dict):
        return [figure for item in value.values() for figure in figures_in(item)]
    if is_dataclass(value):
        return [figure for field in fields(value) for figure in figures_in(getattr(value, field.name))]
    return []


def hardware(name: str, device: str = "cuda") -> Hardware:
    return Hardware(device=device, name=name, num_threads=4, memory_bytes=2**30)


def with_user(text: str) -> Any:
    return parse_catalogues([(BUILT_IN_TEXT, "built-in"), (text, "mine.yaml")])


def test_every_figure_says_where_it_is_from_and_an_estimate_how_wrong_it_may_be() -> None:
    figures = figures_in(built_in_catalogue())
    assert len(figures) > 150
    assert all(figure.source for figure in figures)
    assert {figure.provenance for figure in figures} == set(Provenance)
    assert all(figure.relative_error > 0 for figure in figures if figure.provenance is not Provenance.IMPORTED)


def test_it_has_the_hardware_and_fabrics_that_plans_ask_for() -> None:
    known = built_in_catalogue()
    devices = {"V100-16", "V100-32", "A100-40", "A100-80", "H100", "H200", "B200", "A5000", "MI300X", "L40S", "L4"}
    assert devices | {"A10", "T4", "CPU"} <= set(known.devices)
    links = {"loopback", "InfiniBand HDR", "InfiniBand NDR", *(f"NVLink {n}" for n in (2, 3, 4, 5))}
    links |= {f"PCIe {n}" for n in (3, 4, 5)} | {f"Ethernet {n}" for n in (10, 25, 100, 200, 400)}
    assert links <= set(known.links)
    assert known.devices["V100-16"].peak["float16"].value == 125e12
    assert known.devices["H200"].bandwidth.value == 4.8e12
    assert known.links["InfiniBand HDR"].bandwidth.value == 25e9
    assert known.nodes["DGX A100"].num_devices == 8


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A10G", "A10"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-16GB", "V100-16"),
        ("Tesla V100-SXM2-32GB", "V100-32"),
        ("AMD Instinct MI300X", "MI300X"),
        ("Strange", "GPU"),
        ("NVIDIA RTX A1000", "GPU"),
        ("NVIDIA L40", "GPU"),
    ],
)
def test_a_device_is_known_by_the_longest_of_its_names(name: str, device: str) -> None:
    assert built_in_catalogue().device_of(hardware(name)).name == device
    assert built_in_catalogue().device_of(hardware(name, "cpu")).name == "CPU"


def test_a_user_adds_hardware(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(NEW_DEVICE)
    known = read_catalogue(path)
    toy = known.device_of(hardware("NVIDIA H100 Toy"))
    assert (toy.name, toy.memory and toy.memory.value, toy.bytes_per_s()) == ("Toy", 2**30, 1e9)
    assert toy.reached_flops("float16") == 0.6e9
    assert known.device_of(hardware("NVIDIA H100")).name == "H100"


def test_a_user_changes_single_figures_and_the_others_stay() -> None:
    text = """
devices:
  H100:
    peak:
      float16: {value: 700 TFLOP/s, source: measured 2026-11-21, provenance: measured, error: 3 %}
links:
  NVLink 4:
    reached: {value: 300 GB/s, source: our nccl-tests, provenance: measured, error: 5 %}
"""
    before, after = built_in_catalogue(), with_user(text)
    changed = after.devices["H100"].peak["float16"]
    assert changed == Figure(
        value=700e12, source="measured 2026-11-21", provenance=Provenance.MEASURED, relative_error=0.03
    )
    assert after.devices["H100"].peak["float32"] == before.devices["H100"].peak["float32"]
    assert after.devices["A100-80"] == before.devices["A100-80"]
    assert after.links["NVLink 4"].fabric.bytes_per_s == 300e9
    assert after.links["NVLink 4"].bandwidth == before.links["NVLink 4"].bandwidth


def test_of_equally_long_names_the_users_counts() -> None:
    mine = NEW_DEVICE.replace('[Toy, "H100 Toy"]', "[H100]")
    assert with_user(mine).device_of(hardware("NVIDIA H100")).name == "Toy"


@pytest.mark.parametrize(
    ("text", "line", "field", "says"),
    [
        ("devices:\n  H100: {colour: red}", 2, "devices.H100.colour", "is unknown"),
        ("gadgets: {}", 1, "gadgets", "is unknown"),
        ("devices:\n  H100:\n    source: x\n    memory: 80 GB/s", 4, "devices.H100.memory", "'80 GB', not '80 GB/s'"),
        ("devices:\n  H100: {source: x, bandwidth: 3 TFLOP/s}", 2, "devices.H100.bandwidth", "900 GB/s"),
        ("devices:\n  H100: {source: x, peak: {float16: -1 TFLOP/s}}", 2, "devices.H100.peak.float16", "positive"),
        ("devices:\n  H100: {source: x, peak: {float16: nan TFLOP/s}}", 2, "devices.H100.peak.float16", "finite"),
        ("devices:\n  H100: {source: x, peak: {float17: 1 TFLOP/s}}", 2, "devices.H100.peak.float17", "is unknown"),
        ("devices:\n  H100:\n    memory: 96 GB", 3, "devices.H100.memory", "has no source"),
        ("links:\n  PCIe 4: {source: x, latency: 5 parsecs}", 2, "links.PCIe 4.latency", "a time such as '5 us'"),
        ("links:\n  Rope: {source: x, latency: 5 s}", 2, "links.Rope", "lacks bandwidth, reached"),
        ("devices:\n  H100: {link: String}", 2, "devices.H100.link", "names 'String'"),
        ("devices:\n  H100: {kind: toaster}", 2, "devices.H100.kind", "should be gpu or cpu"),
        ("practices:\n  gpu: {source: x, usual: 120 %}", 2, "practices.gpu.usual", "at most 1"),
        (
            "practices:\n  gpu:\n    source: x\n    memory: [[10, 5 %], [20, 50 %]]",
            4,
            "practices.gpu.memory[1]",
            "does not go on",
        ),
        ("practices:\n  gpu: {source: x, memory: [[10, 5 %, 3]]}", 2, "practices.gpu.memory[0]", "a size and a share"),
        ("nodes:\n  DGX A100: {num_devices: 0}", 2, "nodes.DGX A100.num_devices", "whole number from 1"),
        ("devices:\n  H100:\n    link: PCIe 4\n    link: PCIe 5", 4, "devices.H100", "has 'link' twice"),
        ("devices: [H100]", 1, "devices", "should hold 'name: value' lines"),
        ("devices: &a\n  H100: *a", 1, "devices.H100", "refers to itself"),
        ("devices:\n  H100: {source: x, provenance: rumoured}", 2, "devices.H100.provenance", "not 'rumoured'"),
    ],
)
def test_a_fault_is_told_with_file_line_field_and_what_to_do(text: str, line: int, field: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        with_user(text)
    assert caught.value.message.startswith(f"mine.yaml, line {line}: {field} ")
    assert says in caught.value.message
    assert caught.value.field == field


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        read_catalogue(tmp_path / "missing.yaml")
    with pytest.raises(InvalidArgumentError, match=r"mine\.yaml, line 2"):
        with_user("devices:\n  : : [")
    with pytest.raises(NotFoundError, match="no device 'Z80'"):
        built_in_catalogue().device("Z80")


def test_an_empty_file_changes_nothing_and_a_catalogue_survives_json() -> None:
    known = with_user("")
    assert known == built_in_catalogue()
    assert from_document(type(known), to_document(known)) == known


@settings(max_examples=40, deadline=None)
@given(
    line=st.integers(0, BUILT_IN_TEXT.count("\n")),
    at=st.integers(0, 120),
    text=st.text("-:[]{}'\"%&*! \t\n0.GBx/s", max_size=6),
)
def test_a_damaged_catalogue_is_refused_or_read_but_never_breaks(line: int, at: int, text: str) -> None:
    lines = BUILT_IN_TEXT.split("\n")[line : line + 30]
    lines[0] = lines[0][:at] + text + lines[0][at:]
    with suppress(InvalidArgumentError):
        assert set(with_user("\n".join(lines)).devices) >= set(built_in_catalogue().devices)


@given(value=st.floats(1e-6, 1e18), kind=st.sampled_from([Kind.BYTES, Kind.BANDWIDTH, Kind.COMPUTE, Kind.TIME]))
def test_a_quantity_is_read_as_it_is_written(value: float, kind: Kind) -> None:
    assert parse_quantity(format_quantity(value, kind), kind) == pytest.approx(value, rel=1e-3)


@given(number=st.floats(1e-3, 1e3), kind=st.sampled_from(Kind), unit=st.text("kMGTPBiFLOPs/bt%", max_size=8))
def test_a_quantity_has_a_known_unit_or_is_refused(number: float, kind: Kind, unit: str) -> None:
    if unit in kind.units and (kind is not Kind.SHARE or number * kind.units[unit] <= 1):
        assert parse_quantity(f"{number} {unit}", kind) == pytest.approx(number * float(kind.units[unit]))
    else:
        with pytest.raises(ValueError, match="should be"):
            parse_quantity(f"{number} {unit}", kind)


@pytest.mark.parametrize("depth", [600, 100_000])  # so deep a list ends PyYAML's loader in C, and the process
def test_a_file_that_is_hundreds_of_levels_deep_is_refused(depth: int) -> None:
    """Found by tests/fuzz."""
    with pytest.raises(InvalidArgumentError, match="50 deep"):
        parse_catalogues([("devices: " + "[" * depth + "]" * depth, "deep.yaml")])
