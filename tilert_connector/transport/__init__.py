"""The data plane: one seam, and back ends that pass the same conformance suite."""

from tilert_connector.transport.base import Carrier, Carriers, Endpoint, Grant, Report, Sink, Writer
from tilert_connector.transport.choose import TRANSPORTS, allocate_slots, make_carriers, open_carriers, open_sink
from tilert_connector.transport.engine import Engine, EngineMissing, Transfer
from tilert_connector.transport.engine_carrier import EngineCarrier
from tilert_connector.transport.engine_sink import EngineSink
from tilert_connector.transport.fake import FakeCarrier, FakeSink, FakeWire, Fault
from tilert_connector.transport.faulty import FaultyCarriers
from tilert_connector.transport.frame import Frame, cut_frames
from tilert_connector.transport.pages import HeapSlot, Slot, SlotPages
from tilert_connector.transport.self_test import Measured, Pattern, pattern_tokens, self_test, write_pattern
from tilert_connector.transport.shm_carrier import ShmCarrier
from tilert_connector.transport.shm_sink import ShmSink
from tilert_connector.transport.tcp_sink import TcpSink
from tilert_connector.transport.tcp_writer import TcpCarrier
from tilert_connector.transport.tested_sink import TestedSink

__all__ = [
    "TRANSPORTS",
    "Carrier",
    "Carriers",
    "Endpoint",
    "Engine",
    "EngineCarrier",
    "EngineMissing",
    "EngineSink",
    "FakeCarrier",
    "FakeSink",
    "FakeWire",
    "Fault",
    "FaultyCarriers",
    "Frame",
    "Grant",
    "HeapSlot",
    "Measured",
    "Pattern",
    "Report",
    "ShmCarrier",
    "ShmSink",
    "Sink",
    "Slot",
    "SlotPages",
    "TcpCarrier",
    "TcpSink",
    "TestedSink",
    "Transfer",
    "Writer",
    "allocate_slots",
    "cut_frames",
    "make_carriers",
    "open_carriers",
    "open_sink",
    "pattern_tokens",
    "self_test",
    "write_pattern",
]
