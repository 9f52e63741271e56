"""Ending what is left of a stack whose supervisor was killed."""

from pathlib import Path

from headway.cli.process import end_all, is_alive
from headway.cli.supervisor.supervisor import STOP_GRACE_S, end_recorded, end_unrecorded
from headway.client.stack import Stack, remove_stack
from headway.store.embedded import EmbeddedRedis


async def end_crashed(state_dir: Path, stack: Stack) -> None:
    """Ends every process that the stack recorded, the controller first so that it restarts none.

    Redis knows the others; where it is gone too it is started once more on its data.
    """
    if stack.controller is not None:
        end_all([stack.controller], grace_s=STOP_GRACE_S)
    if is_alive(stack.redis):
        await end_recorded(stack.redis_url)
    else:
        redis = EmbeddedRedis(state_dir / "redis")
        redis.start()
        await end_recorded(redis.url)
        redis.stop()
    end_unrecorded(state_dir / "logs")
    if stack.redis is not None:
        end_all([stack.redis], grace_s=STOP_GRACE_S)
    remove_stack(state_dir)
