"""Where each token's attention state lies, on the wire and in a slot."""

from tilert_connector.layout.fingerprint import Fingerprint, difference, fingerprint
from tilert_connector.layout.kv_layout import Family, KvLayout, gqa_layout, mla_layout
from tilert_connector.layout.plane import Plane, Span
from tilert_connector.layout.views import plane_views
from tilert_connector.layout.weights import weights_digest

__all__ = [
    "Family",
    "Fingerprint",
    "KvLayout",
    "Plane",
    "Span",
    "difference",
    "fingerprint",
    "gqa_layout",
    "mla_layout",
    "plane_views",
    "weights_digest",
]
