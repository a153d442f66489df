"""Settings that every test shares.

Invariant: no test reaches the network; Hugging Face libraries are told to stay offline before anything imports
them.
"""

import gc
import os
import sys

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
_STATUS = pytest.StashKey[int]()
_FROZEN = pytest.StashKey[bool]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave vLLM out of collections once it is loaded: each takes 0.3 s, which no test of a timeout should see."""
    if "vllm" in sys.modules and not item.config.stash.get(_FROZEN, False):
        gc.collect()
        gc.freeze()
        item.config.stash[_FROZEN] = True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remember how the session ended."""
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End without tearing the interpreter down where libraries meet that are never together otherwise.

    vLLM's serving classes, both transfer engines, PyTorch and numba's threads in one process have crashed in their
    destructors after everything was over, which then hid how the tests had ended.
    """
    status = config.stash.get(_STATUS, None)
    if status is not None and "vllm" in sys.modules:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
