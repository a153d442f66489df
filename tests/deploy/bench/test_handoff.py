"""The handoff benchmark moves every byte by each way, and names what it leaves out."""

import pytest

from deploy.bench.handoff import HandoffBenchConfig
from deploy.bench.handoff.rates import rates
from speedtier.errors import ConfigError


@pytest.mark.slow
def test_each_way_is_measured_against_what_the_machine_can_do() -> None:
    part = rates(HandoffBenchConfig(rounds=1, transports="shm,tcp"))
    assert set(part.ratio) == {"shm_memcpy", "tcp_sockets"}
    assert all(0 < value < 100 for value in part.ratio.values())
    assert [row[0] for row in part.rows] == ["memcpy", "sockets", "shm", "tcp"]


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(ConfigError, match="transports: 'pigeon' is none of"):
        rates(HandoffBenchConfig(transports="pigeon"))
