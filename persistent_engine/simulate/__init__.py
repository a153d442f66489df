"""The simulator: discrete events over a plan on a machine, and the same work kernel by kernel. Imports no compiler."""

from persistent_engine.manifest import Workload
from persistent_engine.simulate.bounds import Bounds, bounds_of
from persistent_engine.simulate.cost import Costs, FixedCosts, Work, time_of
from persistent_engine.simulate.events import run
from persistent_engine.simulate.formulas import FormulaCosts
from persistent_engine.simulate.kernels import Launch, kernels_of
from persistent_engine.simulate.lower import program_of
from persistent_engine.simulate.machine import Machine, machine_from
from persistent_engine.simulate.path import Link, critical_path
from persistent_engine.simulate.program import Job, Lane, Program
from persistent_engine.simulate.result import Result, WorkerTime, result_of
from persistent_engine.simulate.timeline import NOBODY, Timeline

__all__ = [
    "NOBODY",
    "Bounds",
    "Costs",
    "FixedCosts",
    "FormulaCosts",
    "Job",
    "Lane",
    "Launch",
    "Link",
    "Machine",
    "Program",
    "Result",
    "Timeline",
    "Work",
    "WorkerTime",
    "Workload",
    "bounds_of",
    "critical_path",
    "kernels_of",
    "machine_from",
    "program_of",
    "result_of",
    "run",
    "time_of",
]
