"""The authority that `headway up --tls` makes."""

import stat
from pathlib import Path

import pytest

from headway.cli.local_authority import keep_certificate, make_certificate
from headway.core.errors import InvalidArgumentError
from headway.rpc.certificates import Certificates
from tests.rpc.authority import Authority


def test_it_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    files = keep_certificate(tmp_path)
    certificates = Certificates(files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert keep_certificate(tmp_path) == files
    assert not certificates.renew()


def test_a_new_certificate_is_by_the_same_authority(tmp_path: Path) -> None:
    files = keep_certificate(tmp_path)
    certificates, ca = Certificates(files), Path(files.ca).read_bytes()
    make_certificate(tmp_path)
    assert certificates.renew()
    assert Path(files.ca).read_bytes() == ca


def test_one_that_ends_within_a_month_is_made_anew(tmp_path: Path) -> None:
    files = keep_certificate(tmp_path)
    old = Authority(tmp_path / "old").issue(days=20)
    Path(files.cert).write_bytes(Path(old.cert).read_bytes())
    keep_certificate(tmp_path)
    Certificates(files)  # accepts it


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    files = keep_certificate(tmp_path)
    Path(files.cert).write_text("nothing")
    with pytest.raises(InvalidArgumentError, match=f"{files.cert} is not a PEM file.* Delete {tmp_path}/tls"):
        keep_certificate(tmp_path)
