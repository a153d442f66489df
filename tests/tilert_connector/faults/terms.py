"""What both nodes of the schedule agree on: model, prompts, time limits."""

import numpy as np

from tests.tilert_connector.paged_model import PagedModel, fingerprint
from tilert_connector import ReceiverConfig
from tilert_connector.config import ConnectorConfig

CAPACITY = 200
MARK = fingerprint(family="gqa")
LIMIT_S = 2.5
"""The longest of the time limits below; whatever happens, a handoff has ended then."""
PREFILL = ConnectorConfig(frame_bytes=4096, handoff_s=LIMIT_S, hold_s=1.5, connect_s=1.0, offer_s=1.5, idle_s=1.0)


def receiving(ctrl_port: int) -> ReceiverConfig:
    """The decode node's side of the limits."""
    return ReceiverConfig(
        ctrl_port=ctrl_port,
        handoff_s=LIMIT_S,
        slot_wait_s=1.5,
        claim_s=1.5,
        expect_s=LIMIT_S,
        drain_s=0.3,
    )


def model() -> PagedModel:
    return PagedModel("gqa", 16, blocks=64)


def prompt(seed: int, tokens: int) -> list[int]:
    """Token ids; prompts of one seed are beginnings of each other, as their state is."""
    return [int(token) for token in np.random.default_rng(seed).integers(0, 50000, CAPACITY)[:tokens]]
