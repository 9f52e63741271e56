"""A world whose model writes tags that are special tokens of its own, under a chat template of the test's."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer

from headway.store.plans import PlanStore
from headway.store.redis import Database
from tests.gateway.vocabularies import byte_level
from tests.gateway.world import World, make_plan, write_checkpoint


def tagging_tokenizer(tags: Sequence[str]) -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_special_tokens(list(tags))
    return tokenizer


@contextmanager
def tagged_world(redis_url: str, directory: Path, tokenizer: Tokenizer, *, template: str) -> Iterator[World]:
    """A world that has started, with `MODEL` of this tokenizer and template."""
    namespace = f"tagged-{uuid.uuid4().hex[:8]}"
    world = World(redis_url, namespace=namespace, directory=directory)
    world.start()
    plan = make_plan(directory)
    checkpoint = write_checkpoint(directory / "tagged", tokenizer, template=template)
    served = replace(plan.models[0], directory=str(checkpoint))
    new = replace(plan, plan_id="plan-2", models=(served, plan.models[1]))
    world.run(PlanStore(Database.connect(redis_url, namespace=namespace)).set_current(new, replaces="plan-1"))
    yield world
    world.stop()


def say(world: World, tokenizer: Tokenizer, text: str) -> None:
    """Has the worker answer with a text."""
    world.worker.reply = tuple(tokenizer.encode(text).ids)


def prompt_of(world: World, tokenizer: Tokenizer) -> str:
    """What the worker was asked last, with all tags."""
    return tokenizer.decode(list(world.worker.last.prompt_token_ids), skip_special_tokens=False)
