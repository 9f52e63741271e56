"""Processes that know each other by certificates, and files of them that cannot be used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.cli.calls import calling
from headway.client.access import Access
from headway.core.errors import HeadwayError, InvalidArgumentError, UnavailableError
from headway.core.tls_files import TlsFiles
from headway.rpc.certificates import Certificates, open_channel
from headway.rpc.config import ProcessConfig
from headway.rpc.host import Host, hosting
from headway.store.membership import Membership
from headway.store.redis import Database
from tests.rpc.authority import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "own")


@asynccontextmanager
async def hosted(redis_url: str, namespace: str, files: TlsFiles) -> AsyncIterator[Host]:
    """A router's host that serves with those files."""
    config = ProcessConfig(
        redis_url=redis_url,
        namespace=namespace,
        tls_ca=Path(files.ca),
        tls_cert=Path(files.cert),
        tls_key=Path(files.key),
    )
    async with hosting("router", config) as host:
        serving = asyncio.create_task(host.serve())
        async with asyncio.timeout(60):
            while not host.member.endpoint:  # noqa: ASYNC110 - the code under test sets it
                await asyncio.sleep(0.01)
        yield host
        host.stopping.set()
        await serving


async def health(endpoint: str, tls: TlsFiles | None) -> int:
    async with calling(endpoint, health_pb2_grpc.HealthStub, access=Access(tls=tls)) as stub:
        response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
    return int(response.status)


def join(path: Path, *parts: str) -> str:
    path.write_bytes(b"".join(Path(part).read_bytes() for part in parts))
    return str(path)


async def test_a_service_answers_those_whom_its_authority_knows_and_no_others(
    redis_url: str, namespace: str, authority: Authority, tmp_path: Path
) -> None:
    files, other = authority.issue(), Authority(tmp_path / "other").issue()
    async with hosted(redis_url, namespace, files) as host:
        endpoint = host.member.endpoint
        assert await health(endpoint, files) == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(UnavailableError, match=rf"not accepted by those in the file {other.ca} \(unable to get"):
            await health(endpoint, other)
        both = join(tmp_path / "both.pem", files.ca, other.ca)
        with pytest.raises(UnavailableError, match=f"instead of accepting .* in the file {other.cert}"):
            await health(endpoint, replace(other, ca=both))
        with pytest.raises(UnavailableError, match="HEADWAY_TLS_CERT, which is not set"):
            await health(endpoint, TlsFiles(ca=files.ca))
        with pytest.raises(HeadwayError):
            await health(endpoint, None)


async def test_processes_call_each_other_with_the_files_of_the_moment(
    redis_url: str, namespace: str, database: Database, authority: Authority
) -> None:
    """A connection that stands goes on; the next ones, and those of shared channels, have what the files hold."""
    files = authority.issue()
    first = Certificates(files)
    async with hosted(redis_url, namespace, files) as host:
        endpoint = host.member.endpoint
        await host.peers.refresh()
        async with open_channel(endpoint, first, options=()) as standing:
            request = health_pb2.HealthCheckRequest()
            await health_pb2_grpc.HealthStub(standing).Check(request, timeout=30)
            shared = host.peers.channel(endpoint)
            await health_pb2_grpc.HealthStub(shared).Check(request, timeout=30)
            authority.issue()
            await host.peers.refresh()
            assert host.peers.channel(endpoint) is not shared
            await health_pb2_grpc.HealthStub(host.peers.channel(endpoint)).Check(request, timeout=30)
            await health_pb2_grpc.HealthStub(standing).Check(request, timeout=30)
            assert await health(endpoint, files) == health_pb2.HealthCheckResponse.SERVING
    assert await Membership(database).members() == []


def test_faulty_files_leave_the_last_good_ones(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.issue()
    certificates = Certificates(files)
    assert not certificates.renew()
    authority.issue(days=-1)
    assert not certificates.renew()
    assert "the certificates stay as they were" in caplog.text
    assert "certificate has expired" in caplog.text
    authority.issue()
    assert certificates.renew()
    Path(files.key).unlink()
    assert not certificates.renew()
    assert f"{files.key} cannot be read" in caplog.text


def test_what_is_wrong_with_a_file_is_said_with_its_name(authority: Authority, tmp_path: Path) -> None:
    good = authority.issue()
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    other = Authority(tmp_path / "other").issue()
    cases = {
        f"{tmp_path}/none.pem cannot be read: No such file": replace(good, ca=f"{tmp_path}/none.pem"),
        f"{text} holds no certificate of an authority": replace(good, ca=str(text)),
        f"{text} and {good.key} are no certificate and its private key": replace(good, cert=str(text)),
        f"{good.cert} and {other.key} are no certificate and its private key": replace(good, key=other.key),
        f"{other.cert} is not accepted by those in {good.ca}": replace(other, ca=good.ca),
    }
    for message, files in cases.items():
        with pytest.raises(InvalidArgumentError, match=message):
            Certificates(files)


@pytest.mark.parametrize(
    ("name", "days", "reason"), [("headway", -1, "certificate has expired"), ("elsewhere", 1, "Hostname mismatch")]
)
def test_a_certificate_that_others_would_refuse_is_refused_at_the_start(
    authority: Authority, name: str, days: float, reason: str
) -> None:
    files = authority.issue(name=name, days=days)
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        Certificates(files)
    assert files.cert in caught.value.message


def test_a_process_needs_all_three_files(authority: Authority) -> None:
    files = authority.issue()
    with pytest.raises(ValueError, match="HEADWAY_TLS_CERT is not set"):
        ProcessConfig(tls_ca=Path(files.ca))
    with pytest.raises(ValueError, match="HEADWAY_TLS_KEY is not set, and HEADWAY_TLS_CERT is"):
        ProcessConfig(tls_ca=Path(files.ca), tls_cert=Path(files.cert))
    with pytest.raises(ValueError, match="HEADWAY_TLS_CA is not set, and HEADWAY_TLS_CERT is"):
        ProcessConfig(tls_cert=Path(files.cert), tls_key=Path(files.key))
    with pytest.raises(ValueError, match=r"none.pem cannot be read"):
        ProcessConfig(tls_ca=Path("none.pem"), tls_cert=Path(files.cert), tls_key=Path(files.key))
    assert isinstance(Certificates(files).for_channel(), grpc.ChannelCredentials)
