"""Certificate: says that this checker found nothing in the plan with this content hash.

Invariant: it fits one plan and one checker; a byte of either that differs makes it void. It is not a signature: it
guards against running what was not checked, not against someone who can write both files.
"""

import functools
import hashlib
from pathlib import Path

import msgspec

from persistent_engine.check.rules import RULES
from persistent_engine.check.run import check
from persistent_engine.check.view import DeviceLimits
from persistent_engine.plan import Plan
from speedtier.errors import PlanError

__all__ = ["Certificate", "certificate", "checker_digest", "load_certificate", "verify"]

SOURCES = ("check", "manifest", "plan")
"""Packages that decide a verdict."""


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """plan: content hash. checker: hash of the checker's sources. rules: ids, all of which held."""

    plan: str
    checker: str
    rules: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """JSON; `load_certificate` reads it."""
        return msgspec.json.encode(self)


@functools.cache
def checker_digest() -> str:
    """SHA-256 over the names and contents of the sources that decide a verdict, hexadecimal."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(path for package in SOURCES for path in (root / package).rglob("*.py")):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def certificate(data: bytes, limits: DeviceLimits | None = None) -> Certificate:
    """Check a plan file and certify it.

    limits: of the device that it is to run on, see `check`. Raises: PlanError with the findings.
    """
    report = check(data, limits)
    if not report.clean:
        raise PlanError("\n".join(report.lines()))
    return Certificate(report.digest, checker_digest(), report.rules)


def load_certificate(data: bytes) -> Certificate:
    """The certificate in `data`. Raises: PlanError when it is none."""
    try:
        return msgspec.json.decode(data, type=Certificate)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PlanError(f"not a certificate: {error}; check the plan again") from error


def verify(plan: Plan, certificate: Certificate) -> None:
    """Raise PlanError unless `certificate` is of this plan, by this checker, under all rules."""
    for field, given, wanted in (
        ("plan", certificate.plan, plan.digest),
        ("checker", certificate.checker, checker_digest()),
        ("rules", certificate.rules, tuple(RULES)),
    ):
        if given != wanted:
            raise PlanError(f"certificate's {field} is {given!r}, wants {wanted!r}; check the plan again")
