"""Simulates requests over time against a placement: who is served where, and when it is finished. Pure,
deterministic."""

from headway.planner.placement.simulator.outcome import SimulationOutcome
from headway.planner.placement.simulator.rules import Dispatch, Rules
from headway.planner.placement.simulator.simulation import attainment, compile_kernels, simulate

__all__ = ["Dispatch", "Rules", "SimulationOutcome", "attainment", "compile_kernels", "simulate"]
