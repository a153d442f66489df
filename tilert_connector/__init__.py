"""Both ends of the handoff of attention state from a prefill node to a decode node.

Invariant: importing the package, its protocol, layout, transport or receiver imports neither vllm nor
torch; only `connector` does, and vLLM alone loads that.
"""

from tilert_connector.errors import HandoffBusy, HandoffFailed, HandoffTimeout
from tilert_connector.receiver import Held, Receiver, ReceiverConfig

__all__ = ["HandoffBusy", "HandoffFailed", "HandoffTimeout", "Held", "Receiver", "ReceiverConfig"]
