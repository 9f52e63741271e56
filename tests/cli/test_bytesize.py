import pytest
import typer

from headway.cli.bytesize import parse_bytes


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1024", 1024),
        ("2GiB", 2 << 30),
        ("2gib", 2 << 30),
        ("512MiB", 512 << 20),
        ("1.5G", 1_500_000_000),
        ("2 GB", 2_000_000_000),
        ("64Ki", 65536),
        ("7B", 7),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "much", "-1", "1XB", "GiB", "1.2.3", "1iB", "9" * 400, "9" * 308 + "TiB"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="2GiB"):
        parse_bytes(text)
