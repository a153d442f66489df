"""`speedtier keys`: the secrets of a deployment, each in a file that only its owner may read."""

from deploy.keys.config import KeysConfig
from deploy.keys.make import keys

__all__ = ["KeysConfig", "keys"]
