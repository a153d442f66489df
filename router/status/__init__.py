"""``/``: a page for people, and ``/status.json``, which it reads.

Invariant: nothing that a client or a server wrote is in it, and no key: names, addresses, counts and times alone.
"""

from router.status.routes import status_routes
from router.status.state import Status, state

__all__ = ["Status", "state", "status_routes"]
