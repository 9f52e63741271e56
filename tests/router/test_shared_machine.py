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


@pytest.mark.parametrize("contention", [0.3, 1.0])
def test_slow_spells_cost_few_of_those_who_would_keep_their_objective_if_all_were_let_in(contention: float) -> None:
    """Every eight seconds steps take two and a half times as long for two of them, too long for everybody then. Who
    comes afterwards is let in again as soon as one has shown that it is over."""

    def spells(now_s: float) -> float:
        return 2.5 if now_s % 8.0 < 2.0 else 1.0

    slo = Slo(ttft_s=0.05, tpot_s=0.007)
    fates = []
    for asked in (slo, Slo()):
        machine = SharedMachine(contention=contention, seed=34, slowness=spells)
        for _ in range(60):
            machine.arrive(Slo())
            machine.run(machine.now_s + 0.7)
        fates.append(machine.trace(asked, num_requests=200, mean_gap_s=0.08, measured=slo))
    with_objective, without = fates
    assert with_objective.num_met == pytest.approx(with_objective.num_foretold, abs=20)
    assert with_objective.num_met >= without.num_met - 30
