"""Files of others' profiles: read, refused with the path of the fault, and written again."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.catalogue import Provenance
from headway.core.errors import InvalidArgumentError
from headway.profiler.formats import alpaserve, terapipe
from headway.profiler.formats.document import Field, read_document
from tests.profiler.exchange import STAGES, slices

PROFILES = Path(__file__).resolve().parents[1] / "reference" / "alpaserve_profiles.json"

Damage = Callable[[Any], object]


def read_stages(document: Any) -> Any:
    return alpaserve.read(Field(document, ""), hardware="V100-16", created_at_s=1.0)


def read_slices(document: Any) -> Any:
    return terapipe.read(Field(document, ""), hardware="V100-16", created_at_s=1.0)


def test_stages_are_read_and_written_as_they_were() -> None:
    profiles = read_stages(STAGES)
    two = next(profile for profile in profiles if profile.pp == 2)
    assert (two.model, two.hardware, two.op, two.provenance) == ("toy", "V100-16", 4, Provenance.IMPORTED)
    assert two.weight_bytes == (100, 200)
    assert two.layers_per_stage == (3, 4)
    assert [batch.batch_size for batch in two.batches] == [1, 2]
    assert two.batches[0].stage_latency_s == (0.25, 0.5)
    assert len({profile.profile_id for profile in profiles}) == len(profiles)
    assert alpaserve.write(profiles)["models"] == STAGES["models"]


def test_slices_are_read_fitted_and_written_as_they_were() -> None:
    (profile,) = read_slices(slices())
    assert (profile.model, profile.op, profile.pp, profile.seq_len) == ("toy", 8, 4, 512)
    assert profile.forward.max_relative_error < 1e-6
    assert profile.forward.a3 == pytest.approx(1e-9)
    assert profile.communication.at(96) == pytest.approx(1.5e-4)
    assert terapipe.write([profile])["settings"] == slices()["settings"]


def config(document: Any) -> Any:
    return document["models"]["toy"]["configs"]["pp2_op4"]


@pytest.mark.parametrize(
    ("damage", "path", "says"),
    [
        (lambda d: d.pop("models"), "", "lacks 'models'"),
        (lambda d: d.update(extra=1), "", "unknown field 'extra'"),
        (lambda d: config(d).pop("weight_mem_bytes"), "models.toy.configs.pp2_op4", "lacks 'weight_mem_bytes'"),
        (lambda d: config(d).update(pp=3), "models.toy.configs.pp2_op4", "has pp 3 and op 4"),
        (lambda d: config(d).update(pp=0), "models.toy.configs.pp2_op4.pp", "whole number from 1, not 0"),
        (lambda d: config(d).update(pp=10**400), "models.toy.configs.pp2_op4.pp", "should be finite"),
        (
            lambda d: config(d)["batch"].update({"1" * 5000: config(d)["batch"]["1"]}),
            f"models.toy.configs.pp2_op4.batch.{'1' * 5000}",
            "named after its batch size",
        ),
        (lambda d: config(d).update(num_gpus=7), "models.toy.configs.pp2_op4.num_gpus", "should be 8, not 7"),
        (lambda d: config(d).update(dp="x"), "models.toy.configs.pp2_op4.dp", "should be a number, not 'x'"),
        (
            lambda d: config(d)["batch"]["1"].update(stage_latency_s=[0.1, float("nan")]),
            "models.toy.configs.pp2_op4.batch.1.stage_latency_s[1]",
            "should be finite, not nan",
        ),
        (
            lambda d: config(d)["batch"]["1"].update(stage_latency_s=[0.1, -0.1]),
            "models.toy.configs.pp2_op4.batch.1.stage_latency_s[1]",
            "should be a time above 0",
        ),
        (
            lambda d: config(d)["batch"]["1"].update(stage_latency_s=[0.1]),
            "models.toy.configs.pp2_op4.batch.1.stage_latency_s",
            "should have 2 values, not 1",
        ),
        (
            lambda d: config(d)["batch"].update(many=config(d)["batch"]["1"]),
            "models.toy.configs.pp2_op4.batch.many",
            "named after its batch size",
        ),
        (lambda d: d["models"].update(toy={"configs": {}}), "models.toy.configs", "is empty"),
        (lambda d: d.update(models=[]), "models", "should be an object, not list"),
    ],
)
def test_a_fault_in_stages_is_told_by_its_path(damage: Damage, path: str, says: str) -> None:
    document = copy.deepcopy(STAGES)
    damage(document)
    with pytest.raises(InvalidArgumentError) as caught:
        read_stages(document)
    assert says in caught.value.message
    assert caught.value.field == path
    assert caught.value.hint


def setting(document: Any) -> Any:
    return document["settings"]["1"]


@pytest.mark.parametrize(
    ("damage", "path", "says"),
    [
        (lambda d: d.pop("provenance"), "", "lacks 'provenance'"),
        (lambda d: setting(d).pop("seqlen"), "settings.1", "lacks 'seqlen'"),
        (
            lambda d: setting(d)["latency"].update({"1_64_64": [1, float("inf"), 0]}),
            "settings.1.latency.1_64_64[1]",
            "finite",
        ),
        (lambda d: setting(d)["latency"].update({"1_64": [1, 1, 0]}), "settings.1.latency.1_64", "batch_slice_context"),
        (lambda d: setting(d)["latency"].update({"1_64_0": [1, 1]}), "settings.1.latency.1_64_0", "should have 3"),
        (lambda d: setting(d)["latency"].update({"1_65_8": [1, 1, 1]}), "settings.1.latency.1_65_8", "no '1_65_0'"),
        (lambda d: setting(d)["comm"].update(mean=[3e-4, 2e-4, 1e-4]), "settings.1.comm.mean", "falls"),
        (lambda d: setting(d)["comm"].update(tensor_sizes=[1, 1, 2]), "settings.1.comm.tensor_sizes", "falls"),
    ],
)
def test_a_fault_in_slices_is_told_by_its_path(damage: Damage, path: str, says: str) -> None:
    document = slices()
    damage(document)
    with pytest.raises(InvalidArgumentError) as caught:
        read_slices(document)
    assert says in caught.value.message
    assert caught.value.field == path


def test_a_document_is_json_or_gzip_whole_and_without_twins() -> None:
    text = json.dumps(STAGES).encode()
    assert read_document(text) == read_document(gzip.compress(text))
    for content, says in (
        (b"{", "no valid JSON"),
        (b"\xff\xfe", "no valid JSON"),
        (gzip.compress(text)[:-20], "no complete gzip file"),
        (b'{"a": 1, "a": 2}', "has 'a' twice"),
        (b"[" * 100_000, "no valid JSON"),
    ):
        with pytest.raises(InvalidArgumentError, match=says):
            read_document(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(data=st.data(), value=JSON)
def test_a_file_with_any_value_anywhere_is_read_or_refused(data: st.DataObject, value: Any) -> None:
    for document, read in ((copy.deepcopy(STAGES), read_stages), (slices(), read_slices)):
        holder: Any = document
        while True:
            key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
            if not holder[key] or not isinstance(holder[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
                break
            holder = holder[key]
        holder[key] = value
        try:
            profiles = read(document)
        except InvalidArgumentError:
            continue
        assert profiles


def test_the_profiles_of_alpaserve_are_read_whole_and_written_as_they_were() -> None:
    document = read_document(PROFILES.read_bytes())
    profiles = alpaserve.read(document, hardware="V100-16", created_at_s=0.0)
    alone = {each.model: each.batches[0].stage_latency_s[0] for each in profiles if each.pp * each.op == 1}
    assert alone["bert-1.3b"] == 0.15109131071302626
    assert alone["bert-6.7b"] == 0.3950637976328532
    assert alpaserve.write(profiles)["models"] == document["models"].value
