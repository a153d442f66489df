"""`speedtier bench connector`: what general traffic pays for the connector's being loaded."""

from deploy.bench.connector.config import ConnectorBenchConfig
from deploy.bench.connector.cost import connector

__all__ = ["ConnectorBenchConfig", "connector"]
