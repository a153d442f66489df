"""How vLLM is told to load a connector that does nothing: what any connector at all costs it."""

__all__ = ["IDLE_TRANSFER"]

IDLE_TRANSFER = {
    "kv_connector": "IdleConnector",
    "kv_connector_module_path": "deploy.bench.connector.idle_connector",
    "kv_role": "kv_producer",
}
