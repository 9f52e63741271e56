"""Attainment foretold and measured where nobody has profiled steps, and workers take the machine from each other."""

import pytest

from headway.core.slo import Slo
from tests.router.shared_machine import SharedMachine


@pytest.mark.parametrize("contention", [0.3, 1.0])
def test_what_is_foretold_comes_true_after_a_slow_spell_and_most_are_let_in(contention: float) -> None:
    """Steps took three times as long for the first 40 seconds, as while other processes start beside them."""
    machine = SharedMachine(contention=contention, seed=34, slowness=lambda now_s: 3.0 if now_s < 40.0 else 1.0)
    for _ in range(60):
        machine.arrive(Slo())
        machine.run(machine.now_s + 0.7)
    first_s, alone_s = machine.alone_s()
    slo = Slo(ttft_s=4 * first_s, tpot_s=2 * (alone_s - first_s) / 32)
    fates = machine.trace(slo, num_requests=100, mean_gap_s=alone_s / 1.5)
    assert fates.num_met == pytest.approx(fates.num_foretold, abs=5)
    assert fates.num_refused <= 20
