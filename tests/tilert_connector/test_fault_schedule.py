"""A thousand seeded faults: no wrong byte, no wait beyond its limit, nothing held or leaked afterwards."""

import itertools
import os
import random

import pytest

from tests.tilert_connector.faults.engines import engine_missing
from tests.tilert_connector.faults.schedule import FAULTS, schedule

FULL = int(os.environ.get("SPEEDTIER_FAULTS", "1000" if "SPEEDTIER_SOAK_S" in os.environ else "0"))
"""How many faults, over all transports."""
SEED = int(os.environ.get("SPEEDTIER_SEED", "1"))
TRANSPORTS = ("tcp", "shm", "nixl", "mooncake") if FULL else ("tcp", "shm")
DESCRIPTORS, THREADS = 160, 40
"""Far above what either process needs, far below what a leak a fault would come to."""


@pytest.mark.contract("H2", "H3", "H4", "H5", "H6", "H8", "H13")
@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_whatever_fails_no_byte_is_wrong_and_nothing_is_held(transport: str) -> None:
    missing = engine_missing(transport)
    if missing:
        pytest.skip(missing)
    count = FULL // len(TRANSPORTS) or len(FAULTS)
    order = random.Random(SEED)
    async with schedule(SEED, transport) as one:
        print(f"\nSPEEDTIER_SEED={SEED}, {count} faults over {transport}")
        kinds = itertools.chain(order.sample(FAULTS, len(FAULTS)), iter(lambda: order.choice(FAULTS), None))
        for number, kind in enumerate(itertools.islice(kinds, count)):
            await one.fault(kind)
            if number % 4 == 3 or number == count - 1:
                await one.clean()
        decode, prefill = await one.statuses()
        print(f"{dict(one.ends)}, descriptors {decode['descriptors']} and {prefill['descriptors']}")
        assert decode["descriptors"] < DESCRIPTORS and prefill["descriptors"] < DESCRIPTORS
        assert decode["threads"] < THREADS and prefill["threads"] < THREADS
        assert one.ends["committed"] > count // 4
