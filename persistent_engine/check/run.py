"""Run all rules over the bytes of a plan file."""

from persistent_engine.check.report import Finding, Report
from persistent_engine.check.rules import NEEDS, RULES
from persistent_engine.check.view import DeviceLimits, View
from persistent_engine.plan import decode
from speedtier.errors import PlanError

__all__ = ["check"]


def check(data: bytes, limits: DeviceLimits | None = None) -> Report:
    """Check a plan file under P1 to P13. Raises nothing, whatever `data` is.

    limits: the machine that it is to run on; None leaves out what only a machine can decide (P3).
    """
    try:
        plan = decode(data)
    except PlanError as error:
        return Report("", 0, (), (Finding("P1", str(error)),))
    view = View(plan, limits)
    found: list[Finding] = []
    ran: list[str] = []
    broken: set[str] = set()
    for rule, run in RULES.items():
        if broken.intersection(NEEDS[rule]):
            continue
        ran.append(rule)
        findings = run(view)
        found += findings
        if findings:
            broken.add(rule)
    return Report(plan.digest, len(plan.tasks), tuple(ran), tuple(found))
