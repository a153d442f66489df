"""`speedtier plan check`: whether a plan keeps the rules, and a certificate beside it when it does.

Invariant: a certificate is written for a plan without a finding only, and an old one does not outlive a finding.
"""

from pathlib import Path

from rich.console import Console

from deploy.plan.config import CheckConfig
from deploy.plan.files import read_bytes, write
from deploy.plan.target import machine_of
from persistent_engine.check import certificate, check
from speedtier.errors import PlanError

__all__ = ["check_plan"]


def check_plan(config: CheckConfig) -> None:
    """Check, print what was found, write the certificate. Raises: PlanError when there is a finding."""
    data = read_bytes(config.plan)
    limits = machine_of(config.device) if config.device else None
    beside = Path(config.certificate or f"{config.plan}.certificate")
    report = check(data, limits)
    if not report.clean:
        beside.unlink(missing_ok=True)
        raise PlanError("\n".join((f"{config.plan} is refused", *report.lines())))
    write(str(beside), certificate(data, limits).to_bytes())
    console = Console(soft_wrap=True)
    for line in report.lines():
        console.print(line, markup=False, highlight=False)
    console.print(f"certificate: {beside}", markup=False, highlight=False)
