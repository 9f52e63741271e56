"""How far the fetching of a model's files has come: what who fetches tells whoever waits."""

from dataclasses import dataclass

FETCH_RECORD = ".fetched.json"
"""The file in a fetched model's directory that has the last report of it, as a JSON document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReport:
    """Attributes:
    uri: of the model.
    version: what the files are of: a commit, the digest of a manifest, or of what a bucket lists; empty before it is
        known. A branch or a tag may be another tomorrow.
    num_bytes, total_bytes: that are there, and that there are to be.
    sha256: the digest of all files, once they are there; see `checkpoint.model_digest`.
    error: why it ended without them; empty where it has not.
    """

    uri: str
    version: str = ""
    num_bytes: int = 0
    total_bytes: int = 0
    sha256: str = ""
    error: str = ""

    @property
    def is_done(self) -> bool:
        return bool(self.sha256)
