"""Reads files of profiles that others made, in whichever form."""

from collections.abc import Sequence

from headway.core.errors import InvalidArgumentError
from headway.core.slice_profile import SliceProfile
from headway.core.stage_profile import StageProfile
from headway.profiler.formats import alpaserve, terapipe
from headway.profiler.formats.document import read_document


def read_profiles(content: bytes, *, hardware: str, created_at_s: float) -> Sequence[StageProfile | SliceProfile]:
    """Reads a file in AlpaServe's or TeraPipe's form; InvalidArgumentError names the path of the field."""
    document = read_document(content)
    if alpaserve.recognises(document):
        return alpaserve.read(document, hardware=hardware, created_at_s=created_at_s)
    if terapipe.recognises(document):
        return terapipe.read(document, hardware=hardware, created_at_s=created_at_s)
    raise InvalidArgumentError(
        "The file is of no known form.",
        hint="AlpaServe's has 'models', TeraPipe's 'schema' and 'settings' with 'latency'; see docs/profile.md.",
        field="content",
    )
