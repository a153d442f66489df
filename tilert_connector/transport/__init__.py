"""The data plane: one seam, and back ends that pass the same conformance suite."""

from tilert_connector.transport.base import Carrier, Carriers, Endpoint, Grant, Report, Sink, Writer
from tilert_connector.transport.choose import TRANSPORTS, make_carriers, open_carriers, open_sink
from tilert_connector.transport.fake import FakeCarrier, FakeSink, FakeWire, Fault
from tilert_connector.transport.frame import Frame, cut_frames
from tilert_connector.transport.pages import SlotPages, allocate_pages
from tilert_connector.transport.shm_carrier import ShmCarrier
from tilert_connector.transport.shm_sink import ShmSink
from tilert_connector.transport.tcp_sink import TcpSink
from tilert_connector.transport.tcp_writer import TcpCarrier

__all__ = [
    "TRANSPORTS",
    "Carrier",
    "Carriers",
    "Endpoint",
    "FakeCarrier",
    "FakeSink",
    "FakeWire",
    "Fault",
    "Frame",
    "Grant",
    "Report",
    "ShmCarrier",
    "ShmSink",
    "Sink",
    "SlotPages",
    "TcpCarrier",
    "TcpSink",
    "Writer",
    "allocate_pages",
    "cut_frames",
    "make_carriers",
    "open_carriers",
    "open_sink",
]
