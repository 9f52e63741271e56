"""Imported profiles through the service's own protocol and a real Redis."""

import copy
import gzip
import json

import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.profile_summary import ProfileSummary
from headway.core.slice_profile import SliceProfile
from headway.core.stage_profile import StageProfile
from headway.profiler.imports import ImportedProfiles
from headway.rpc.convert import from_pb
from headway.store.redis import Database
from headway.v1 import profiler_pb2 as pb
from headway.v1 import profiler_pb2_grpc
from tests.profiler.exchange import STAGES, slices


@pytest.fixture
def imported(database: Database) -> ImportedProfiles:
    return ImportedProfiles(database, catalogue=built_in_catalogue())


@pytest.fixture
async def profiler(stub: "profiler_pb2_grpc.ProfilerServiceAsyncStub") -> "profiler_pb2_grpc.ProfilerServiceAsyncStub":
    return stub


async def test_what_is_imported_is_listed_shown_and_given_out_again(
    profiler: "profiler_pb2_grpc.ProfilerServiceAsyncStub",
) -> None:
    for document in (STAGES, slices()):
        content = gzip.compress(json.dumps(document).encode())
        await profiler.ImportProfiles(pb.ImportProfilesRequest(content=content, hardware="V100-16"))
    response = await profiler.ListImported(pb.ListImportedRequest())
    summaries = [from_pb(summary, ProfileSummary) for summary in response.profiles]
    assert [(each.kind, each.pp, each.op) for each in summaries] == [
        ("slices", 4, 8),
        ("stages", 1, 1),
        ("stages", 2, 4),
    ]
    assert {each.provenance.value for each in summaries} == {"imported"}
    assert {each.source for each in summaries} == {"made up"}

    ids = [each.profile_id for each in summaries]
    found = [await profiler.GetImported(pb.GetImportedRequest(profile_id=name)) for name in ids]
    table, two = from_pb(found[0].slices, SliceProfile), from_pb(found[2].stages, StageProfile)
    assert table.forward is not None
    assert table.forward.a3 == pytest.approx(1e-9)
    assert two.batches[1].stage_latency_s == (0.5, 0.75)

    for names, document in ((ids[:1], slices()), (ids[1:], STAGES)):
        given = await profiler.ExportProfiles(pb.ExportProfilesRequest(profile_ids=names))
        written = json.loads(given.content)
        assert written.get("models", written.get("settings")) == document.get("models", document.get("settings"))


async def test_it_survives_a_restart_and_a_second_import_replaces_the_first(
    database: Database, imported: ImportedProfiles
) -> None:
    first = await imported.take_in(json.dumps(STAGES).encode(), hardware="V100-16")
    changed = copy.deepcopy(STAGES)
    changed["models"]["toy"]["configs"]["pp1_op1"]["batch"]["1"]["stage_latency_s"] = [2.0]
    restarted = ImportedProfiles(database, catalogue=built_in_catalogue())
    assert await restarted.list() == sorted(first, key=lambda each: each.pp)
    await restarted.take_in(json.dumps(changed).encode(), hardware="V100-16")
    assert len(await restarted.list()) == len(first)
    profile = await restarted.get(first[0].profile_id)
    assert isinstance(profile, StageProfile)
    assert profile.batches[0].stage_latency_s == (2.0,)
    await restarted.take_in(json.dumps(STAGES).encode(), hardware="A100-40")
    assert len(await restarted.list()) == 2 * len(first), "on other hardware they are others"


async def test_a_file_with_a_fault_leaves_nothing_behind(imported: ImportedProfiles) -> None:
    damaged = copy.deepcopy(STAGES)
    damaged["models"]["toy"]["configs"]["pp2_op4"]["batch"]["2"]["stage_latency_s"][1] = float("nan")
    with pytest.raises(InvalidArgumentError, match=r"pp2_op4\.batch\.2\.stage_latency_s\[1\] should be finite"):
        await imported.take_in(json.dumps(damaged).encode(), hardware="V100-16")
    with pytest.raises(NotFoundError, match="no device 'Z80'"):
        await imported.take_in(json.dumps(STAGES).encode(), hardware="Z80")
    with pytest.raises(InvalidArgumentError, match="no known form"):
        await imported.take_in(b'{"settings": {}}', hardware="V100-16")
    assert await imported.list() == []


async def test_what_does_not_belong_into_one_file_is_not_given_out(imported: ImportedProfiles) -> None:
    stages = await imported.take_in(json.dumps(STAGES).encode(), hardware="V100-16")
    others = await imported.take_in(json.dumps(STAGES).encode(), hardware="A100-40")
    tables = await imported.take_in(json.dumps(slices()).encode(), hardware="V100-16")
    for names in ([], [stages[0].profile_id, tables[0].profile_id], [stages[0].profile_id, others[0].profile_id]):
        with pytest.raises(InvalidArgumentError, match="A file holds"):
            await imported.give_out(names)
    with pytest.raises(NotFoundError, match="'missing'"):
        await imported.get("missing")
