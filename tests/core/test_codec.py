"""Documents of one version, read by another."""

from dataclasses import dataclass, field

import pytest

from headway.core.cluster import Hardware
from headway.core.codec import ADDED, from_document, to_document
from headway.core.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class _EarlierPart:
    name: str


@dataclass(frozen=True, slots=True)
class _Earlier:
    parts: tuple[_EarlierPart, ...]


@dataclass(frozen=True, slots=True)
class _LaterPart:
    name: str
    size: int = field(default=1, metadata=ADDED)


@dataclass(frozen=True, slots=True)
class _Later:
    parts: tuple[_LaterPart, ...]
    note: str = ""


def test_what_a_later_version_has_stored_is_read_without_what_only_it_knows() -> None:
    document = to_document(_Later(parts=(_LaterPart("a", size=2), _LaterPart("b")), note="new"))
    read = from_document(_Earlier, document, is_stored=True)
    assert read == _Earlier(parts=(_EarlierPart("a"), _EarlierPart("b")))


def test_what_people_write_is_refused_where_it_has_an_unknown_field() -> None:
    with pytest.raises(InvalidArgumentError, match=r"parts\[0\] has an unknown field 'size'"):
        from_document(_Earlier, {"parts": [{"name": "a", "size": 2}]})


def test_a_whole_number_is_not_cut_from_another() -> None:
    assert from_document(_LaterPart, {"name": "a", "size": 2.0}) == _LaterPart("a", size=2)
    with pytest.raises(InvalidArgumentError, match=r"size should be int, not 2\.5"):
        from_document(_LaterPart, {"name": "a", "size": 2.5})


def test_an_added_field_is_told_only_where_it_says_something() -> None:
    assert to_document(_LaterPart("a")) == {"name": "a"}
    assert to_document(_LaterPart("a", size=2)) == {"name": "a", "size": 2}
    assert from_document(_LaterPart, {"name": "a"}) == _LaterPart("a")


def test_hardware_of_one_device_is_written_as_versions_wrote_it_that_knew_no_more() -> None:
    """They refuse what they do not know: a plan of a later version would keep them from starting after a rollback."""
    hardware = Hardware(device="cpu", name="a CPU", num_threads=2, memory_bytes=2**30)
    assert "num_devices" not in to_document(hardware)
