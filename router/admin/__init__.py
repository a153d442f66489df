"""``/admin``: an operator adds, drains and removes servers while the router runs.

Invariant: nothing here answers without the key of ``admin_key_file``; without that setting there is nothing here.
"""

from router.admin.key import AdminKey
from router.admin.roster import Entry, Roster
from router.admin.routes import admin_routes

__all__ = ["AdminKey", "Entry", "Roster", "admin_routes"]
