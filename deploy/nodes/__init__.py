"""`speedtier nodes`: the servers behind a running router, by its admin API."""

from deploy.nodes.commands import add, drain, remove, resume, show
from deploy.nodes.config import AddConfig, NamedConfig, NodesConfig, RemoveConfig

__all__ = ["AddConfig", "NamedConfig", "NodesConfig", "RemoveConfig", "add", "drain", "remove", "resume", "show"]
