"""The router benchmark measures the real router between its stubs, and says what it found where others look for it."""

import pytest

from deploy.bench.router import RouterBenchConfig
from deploy.bench.router.report import measure
from speedtier.errors import ConfigError


@pytest.mark.slow
def test_each_figure_is_measured() -> None:
    config = RouterBenchConfig(rounds=1, streams=(1, 3), rates=(100, 400), seconds=0.3, requests=10, prompt=50)
    report = measure(config)
    figures, ratio = report["figures"], report["ratio"]
    cells = [(row["streams"], row["tokens_per_s_per_stream"]) for row in figures["grid"]]
    assert cells == [(1, 100), (1, 400), (3, 100), (3, 400)]
    assert all(row["tokens_per_s"] > 0 and row["cpu_us_per_token"] > 0 for row in figures["grid"])
    assert 0 < figures["cpu_us_per_token"] <= figures["cpu_us_per_token_most"]
    assert figures["ttft_ms"] > report["against"]["stubs_ttft_ms"] > 0 and figures["added_ttft_ms"] > 0
    assert ratio["native_relay"] > 0 and ratio["native_relay_unpaced"] > 0
    assert 0 < figures["general_ms"]["alone"]["p50"] <= figures["general_ms"]["alone"]["p99"]
    assert ratio["general_p50"] > 0 and ratio["general_p99"] > 0


def test_more_streams_than_slots_are_refused() -> None:
    with pytest.raises(ConfigError, match="streams = 1000"):
        measure(RouterBenchConfig(streams=(1, 1000)))
