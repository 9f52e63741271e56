"""Plans of one kind in Redis, each by its id, in the form of document that all plans have."""

from typing import TypeVar

from headway.core.plan.document import Plan, plan_from_document, to_plan_document
from headway.store.documents import Documents
from headway.store.redis import Database
from headway.store.schema import KeyFamily

P = TypeVar("P", bound=Plan)


def plan_documents(database: Database, family: KeyFamily, kind: type[P]) -> Documents[P]:
    """The plans of a key family with one placeholder, the plan's id."""
    return Documents(database, family, kind, encode=to_plan_document, decode=plan_from_document)
