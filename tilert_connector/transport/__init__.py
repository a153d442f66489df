"""The data plane: one seam, and back ends that pass the same conformance suite."""

from tilert_connector.transport.base import Carrier, Carriers, Endpoint, Grant, Report, Sink, Writer
from tilert_connector.transport.choose import make_carriers
from tilert_connector.transport.fake import FakeCarrier, FakeSink, FakeWire, Fault
from tilert_connector.transport.frame import Frame, cut_frames
from tilert_connector.transport.tcp_sink import TcpSink
from tilert_connector.transport.tcp_writer import TcpCarrier

__all__ = [
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
    "Sink",
    "TcpCarrier",
    "TcpSink",
    "Writer",
    "cut_frames",
    "make_carriers",
]
