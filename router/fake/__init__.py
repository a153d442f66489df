"""Stand-ins for the servers behind the router, with faults on cue.

Invariant: they speak the same HTTP as the real ones, so that a test of the router needs neither model nor
engine. Each remembers what it was asked and who hung up.
"""

from router.fake.decode import FakeDecode
from router.fake.native import FakeNative, Seen
from router.fake.parser import FakeParser
from router.fake.prefill import FakePrefill
from router.fake.serving import serving

__all__ = ["FakeDecode", "FakeNative", "FakeParser", "FakePrefill", "Seen", "serving"]
