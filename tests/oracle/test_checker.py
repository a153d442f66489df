"""The checker against an explorer that tries every interleaving: both must say the same of random small plans.

SPEEDTIER_SOAK_S (set by `make soak`) makes it thousands of plans, SPEEDTIER_FUZZ_SEED starts elsewhere. A plan that is
unsafe and passes is a hole in the checker; one that is safe and is refused is a plan that nobody can use.
"""

import os
from collections import Counter

import pytest

from persistent_engine.check import check
from tests.oracle.explorer import explore
from tests.oracle.plans import draw, file_of

PLANS = 4000 if "SPEEDTIER_SOAK_S" in os.environ else 400
FIRST = int(os.environ.get("SPEEDTIER_FUZZ_SEED", "0"))
ABOUT_ORDER = {"P4", "P5", "P6", "P7", "P8", "P9"}


@pytest.mark.soak
@pytest.mark.contract("P4", "P5", "P6", "P7", "P8", "P9")
def test_the_checker_and_every_interleaving_agree(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts: Counter[tuple[bool, bool]] = Counter()
    accepted, refused = [], []
    for seed in range(FIRST, FIRST + PLANS):
        plan = draw(seed)
        wrong = explore(plan)
        findings = [str(one) for one in check(file_of(plan)).findings if one.rule in ABOUT_ORDER]
        verdicts[bool(wrong), bool(findings)] += 1
        if wrong and not findings:
            accepted.append((seed, wrong))
        elif findings and not wrong:
            refused.append((seed, findings))
    safe = verdicts[False, False] + verdicts[False, True]
    with capsys.disabled():
        print(
            f"\n{PLANS} plans, {safe} safe, {PLANS - safe} unsafe: {len(accepted)} false accepts, "
            f"{len(refused)} false rejects"
        )
    assert accepted == []
    assert refused == []
    assert 0.3 <= safe / PLANS <= 0.7
