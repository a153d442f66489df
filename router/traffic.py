"""Which traffic class a request belongs to.

Invariant (R9): the class is one that the operator named; an unknown one is refused, never guessed.
"""

from collections.abc import Mapping

from router.config import RouterConfig, TrafficClass
from router.errors import BadRequest
from speedtier.errors import ConfigError

__all__ = ["Classes"]


class Classes:
    """The configured classes by name.

    Raises:
        ConfigError: no class has the default's name, or two share one.
    """

    def __init__(self, config: RouterConfig) -> None:
        self._by_name = {each.name: each for each in config.classes}
        self._header = config.class_header
        if len(self._by_name) != len(config.classes):
            raise ConfigError(f"classes = {[each.name for each in config.classes]}: names must differ")
        if config.default_class not in self._by_name:
            raise ConfigError(
                f"default_class = {config.default_class!r} is none of the classes {self.names}; name one of them"
            )
        self.default = self._by_name[config.default_class]
        self.native_name = next((each.name for each in config.classes if each.pool == "native"), "native")

    @property
    def names(self) -> list[str]:
        """All names, in the configured order."""
        return list(self._by_name)

    def all(self) -> list[TrafficClass]:
        """All classes, in the configured order."""
        return list(self._by_name.values())

    def of(self, headers: Mapping[str, str]) -> TrafficClass:
        """The class that a request's headers name, else the default.

        Raises:
            BadRequest: the header names no configured class.
        """
        name = headers.get(self._header)
        if name is None:
            return self.default
        try:
            return self._by_name[name.strip()]
        except KeyError:
            raise BadRequest(
                f"{self._header}: {name[:100]!r} is no traffic class here; send one of {self.names} or leave it out",
                param=self._header,
            ) from None
