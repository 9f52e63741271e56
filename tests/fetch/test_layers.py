"""The layers of an image: which of their files count, in whichever order they arrive."""

import io
import json
import os
import tarfile
from itertools import permutations
from pathlib import Path

import pytest

from headway.checkpoint.model_digest import files_of
from headway.core.model_uri import ModelUri
from headway.fetch.registry import RegistrySource, files_of_manifest
from tests.fetch.pretended_registry import LAYER, pretending_registry


def test_the_last_layer_that_has_a_file_counts_whichever_arrives_last(tmp_path: Path) -> None:
    layers = [
        _layer({"config.json": b"old", "a.json": b"a"}),
        _layer({"config.json": b"new"}),
        _layer({"b.json": b"b"}),
    ]
    with pretending_registry([(layer, LAYER, {}) for layer in layers]) as uri:
        for order in (1, -1):
            directory = tmp_path / str(order)
            directory.mkdir()
            source = RegistrySource(ModelUri.parse(uri))
            for file in source.files[::order]:
                source.download(file, directory)
            found = {path.name: path.read_bytes() for path in files_of(directory)}
            assert found == {"config.json": b"new", "a.json": b"a", "b.json": b"b"}


def test_a_layer_that_is_there_twice_counts_where_it_is_last() -> None:
    layers = [{"mediaType": LAYER, "digest": f"sha256:{digit * 64}", "size": 1} for digit in "aba"]
    files = files_of_manifest(json.dumps({"layers": layers}).encode())
    assert [file.key[-1] for file in files] == ["b", "a"]


_WHITEOUTS = {
    "a file": ([{"a.json": b"1", "b.json": b"1"}, {".wh.a.json": b""}], {"b.json"}),
    "and brought again": ([{"a.json": b"1"}, {".wh.a.json": b""}, {"a.json": b"3"}], {"a.json"}),
    "and deleted again": ([{"a.json": b"1"}, {"a.json": b"2"}, {".wh.a.json": b""}], set()),
    "a folder": ([{"a.json": b"1", "1_Pooling/config.json": b"1"}, {".wh.1_Pooling": b""}], {"a.json"}),
    "what a folder had": (
        [{"1_Pooling/a.json": b"1", "a.json": b"1"}, {"1_Pooling/.wh..wh..opq": b"", "1_Pooling/b.json": b"2"}],
        {"1_Pooling/b.json", "a.json"},
    ),
    "all that there was": ([{"a.json": b"1"}, {".wh..wh..opq": b"", "b.json": b"2"}], {"b.json"}),
    "the folder of models": ([{"a.json": b"1"}, {"../.wh.models": b""}, {"b.json": b"3"}], {"b.json"}),
    "of another folder": ([{"a.json": b"1"}, {"../etc/.wh.a.json": b"", "../.wh.etc": b""}], {"a.json"}),
    "nothing": ([{"a.json": b"1"}, {".wh.": b"", ".wh..": b"", ".wh...": b""}], {"a.json"}),
    "before it came": ([{".wh.a.json": b""}, {"a.json": b"2"}], {"a.json"}),
}


@pytest.mark.parametrize("case", _WHITEOUTS)
def test_what_a_layer_of_an_image_deletes_is_gone_in_whichever_order_they_arrive(case: str, tmp_path: Path) -> None:
    layers, expected = _WHITEOUTS[case]
    with pretending_registry([(_layer(files), LAYER, {}) for files in layers]) as uri:
        for number, order in enumerate(permutations(range(len(layers)))):
            directory = tmp_path / str(number)
            directory.mkdir()
            source = RegistrySource(ModelUri.parse(uri))
            for index in order:
                source.download(source.files[index], directory)
            found = [path for path in directory.rglob("[!.]*") if path.is_file()]
            assert {str(path.relative_to(directory)) for path in found} == expected, order


def _layer(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(os.path.normpath(f"models/{name}"))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
