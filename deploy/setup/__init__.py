"""Creates `.venv` and installs what the checkout needs. Standard library only: it runs before anything is
installed.

Invariant: run again with nothing changed, it does nothing; interrupted, the next run goes on; it never
touches a package outside `.venv`.
"""

from deploy.setup.errors import SetupError
from deploy.setup.fake import FakePip
from deploy.setup.install import Plan, install
from deploy.setup.libraries import AptLibraries, FakeLibraries, Libraries
from deploy.setup.pip import Pip, VenvPip

__all__ = ["AptLibraries", "FakeLibraries", "FakePip", "Libraries", "Pip", "Plan", "SetupError", "VenvPip", "install"]
