"""The decode engine: models, plans, compiler and runtimes, and the decode node that serves them."""

__all__: list[str] = []
