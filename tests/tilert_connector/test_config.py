"""The connector's own settings."""

from typing import Any

import pytest

from speedtier.errors import ConfigError
from tilert_connector.config import ConnectorConfig, read_config


def test_nothing_set_is_the_default_and_stays_on_this_machine() -> None:
    assert read_config({}) == ConnectorConfig()
    assert ConnectorConfig().networks == ("127.0.0.0/8", "::1/128")


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"handofs": 1}, "handofs"),
        ({"handoff_s": 0}, "handoff_s"),
        ({"networks": ["10.0.0.0/33"]}, "10.0.0.0/33"),
        ({"networks": "10.0.0.0/8"}, "networks"),
        ({"frame_bytes": 1}, "frame_bytes"),
    ],
)
def test_a_bad_setting_is_named_with_those_that_exist(extra: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as caught:
        read_config(extra)
    assert "known keys: networks, handoff_s" in str(caught.value)
