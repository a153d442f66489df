"""Where each token's attention state lies, on the wire and in a slot."""

from tilert_connector.layout.kv_layout import Family, KvLayout, gqa_layout, mla_layout
from tilert_connector.layout.plane import Plane, Span

__all__ = ["Family", "KvLayout", "Plane", "Span", "gqa_layout", "mla_layout"]
