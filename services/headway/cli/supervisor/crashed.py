"""Ending what is left of a stack whose supervisor was killed."""

from pathlib import Path

from headway.cli.process import end_all, is_alive
from headway.cli.supervisor.recorded import recorded_processes
from headway.cli.supervisor.supervisor import NAMESPACE, STOP_GRACE_S
from headway.client.stack import Stack, remove_stack
from headway.store.embedded import EmbeddedRedis


async def end_crashed(state_dir: Path, stack: Stack) -> None:
    """Ends every process that the stack recorded, the controller first so that it restarts none.

    Redis knows the others; where it is gone too it is started once more on its data.
    """
    if stack.controller is not None:
        end_all([stack.controller], grace_s=STOP_GRACE_S)
    if is_alive(stack.redis):
        recorded = await recorded_processes(stack.redis_url, namespace=NAMESPACE)
    else:
        redis = EmbeddedRedis(state_dir / "redis")
        redis.start()
        recorded = await recorded_processes(redis.url, namespace=NAMESPACE)
        redis.stop()
    end_all(recorded, grace_s=STOP_GRACE_S)
    if stack.redis is not None:
        end_all([stack.redis], grace_s=STOP_GRACE_S)
    remove_stack(state_dir)
