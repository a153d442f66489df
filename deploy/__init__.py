"""Set-up, checkpoints, the command line and the local launcher: everything around the packages that serve."""

__all__: list[str] = []
