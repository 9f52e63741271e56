"""Trying again: soon at first, then less often, and not for ever."""

import pytest

from headway.gateway.retry_deadline import RetryDeadline


async def test_the_first_retry_is_immediate_and_the_time_is_bounded() -> None:
    now_s = 0.0
    retry = RetryDeadline(lambda: now_s)
    await retry.wait(ValueError(), timeout_s=5)
    now_s = 4.9
    await retry.wait(ValueError(), timeout_s=5)
    now_s = 5.0
    with pytest.raises(ValueError, match="the cause"):
        await retry.wait(ValueError("the cause"), timeout_s=5)


async def test_progress_starts_the_time_anew() -> None:
    now_s = 0.0
    retry = RetryDeadline(lambda: now_s)
    await retry.wait(ValueError(), timeout_s=5)
    now_s = 6.0
    retry.renew()
    await retry.wait(ValueError(), timeout_s=5)


async def test_the_time_that_somebody_had_it_does_not_count() -> None:
    now_s = 0.0
    retry = RetryDeadline(lambda: now_s)
    retry.exclude(1.0)  # nothing is counted yet
    await retry.wait(ValueError(), timeout_s=5)
    now_s = 103.0
    retry.exclude(100.0)
    await retry.wait(ValueError(), timeout_s=5)
    now_s = 105.0
    with pytest.raises(ValueError, match="the cause"):
        await retry.wait(ValueError("the cause"), timeout_s=5)
