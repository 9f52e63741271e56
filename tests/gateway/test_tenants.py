"""Who asks, and which objective is theirs."""

from pathlib import Path

import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.slo import Slo
from headway.gateway.tenants import Tenants, read_tenants

FILE = """
tenants:
  gold: {api_keys: [key-1, key-2], slo_ms: 500}
  bulk: {slo_ms: 60000, slo_ttft_ms: 5000}
"""


@pytest.fixture
def tenants(tmp_path: Path) -> Tenants:
    path = tmp_path / "tenants.yaml"
    path.write_text(FILE)
    return read_tenants(path)


@pytest.mark.parametrize(
    ("authorization", "name", "found", "slo"),
    [
        ("Bearer key-2", "", "gold", Slo(e2e_s=0.5)),
        ("bearer key-1", "gold", "gold", Slo(e2e_s=0.5)),
        ("", "bulk", "bulk", Slo(e2e_s=60.0, ttft_s=5.0)),
        ("Bearer other", "bulk", "bulk", Slo(e2e_s=60.0, ttft_s=5.0)),
        ("", "", "", Slo()),
        ("Bearer other", "", "", Slo()),
    ],
)
def test_a_tenant_is_known_by_its_key_or_its_name(
    tenants: Tenants, authorization: str, name: str, found: str, slo: Slo
) -> None:
    tenant = tenants.find(authorization=authorization, name=name)
    assert (tenant.name, tenant.slo) == (found, slo)


@pytest.mark.parametrize(("authorization", "name"), [("", "gold"), ("", "who"), ("Bearer key-1", "bulk")])
def test_nobody_takes_the_name_of_another(tenants: Tenants, authorization: str, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        tenants.find(authorization=authorization, name=name)


def test_a_request_comes_before_its_tenant_and_that_before_the_model() -> None:
    request, tenant, model = Slo(ttft_s=1.0), Slo(ttft_s=2.0, tpot_s=0.2), Slo(ttft_s=3.0, tpot_s=0.3, e2e_s=30.0)
    assert request.over(tenant).over(model) == Slo(ttft_s=1.0, tpot_s=0.2, e2e_s=30.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tenants: {a: {slo_ms: -1}}", "tenants.a.slo_ms: Input should be greater than 0"),
        ("tenants: {a: {slo: 1}}", "tenants.a.slo: Extra inputs"),
        ("tenants: [a]", "tenants: Input should be a valid dict"),
        ("a: b: c", "is no YAML"),
        ("tenants: {a: {api_keys: [k]}, b: {api_keys: [k]}}", "an API key twice"),
    ],
)
def test_a_faulty_file_is_refused_by_what_is_wrong_in_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match=message):
        read_tenants(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"gone\.yaml cannot be read"):
        read_tenants(tmp_path / "gone.yaml")


@pytest.mark.parametrize("content", [b"tenants: {a: {api_keys: [\xb6]}}", b"tenants: 2001-99-99", b"[" * 5000])
def test_what_is_hardly_yaml_is_refused(tmp_path: Path, content: bytes) -> None:
    """Found by tests/fuzz."""
    path = tmp_path / "tenants.yaml"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError):
        read_tenants(path)
