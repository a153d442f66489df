"""The decode node: receiver, engine and HTTP in one process."""

from persistent_engine.server.app import build_app
from persistent_engine.server.config import DecodeConfig
from persistent_engine.server.node import DecodeNode, open_node
from persistent_engine.server.receiving import FakeReceiver, Receiving
from persistent_engine.server.serve import serve, serving

__all__ = ["DecodeConfig", "DecodeNode", "FakeReceiver", "Receiving", "build_app", "open_node", "serve", "serving"]
