"""Which traffic class a request belongs to.

Invariant (R9): API key, header, ``service_tier``, model alias, default, in this order; what a client may not choose is
not read. A class is one that the operator named; an unknown one is refused, never guessed.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from router.aliases import Aliases
from router.body import Body
from router.config import ApiKey, RouterConfig, TrafficClass
from router.errors import BadRequest
from router.tenancy import salted
from speedtier.errors import ConfigError

__all__ = ["Choice", "Classes", "Source"]

Source = Literal["key", "header", "service_tier", "alias", "default"]
# What vLLM's request models take (chat_completion/protocol.py); any other value is the router's own.
VLLM_TIERS = frozenset({"auto", "default", "flex", "scale", "priority"})


class Choice(NamedTuple):
    """A class and what named it."""

    traffic: TrafficClass
    source: Source


class Classes:
    """The configured classes by name.

    Raises:
        ConfigError: classes, keys and aliases contradict each other.
    """

    def __init__(self, config: RouterConfig) -> None:
        self._by_name = {each.name: each for each in config.classes}
        self._header = config.class_header
        self._free = config.client_choice
        if len(self._by_name) != len(config.classes):
            raise ConfigError(f"classes = {[each.name for each in config.classes]}: names must differ")
        for each in config.classes:
            _require_effect(each)
        self.default = self._named("default_class", config.default_class)
        for key in config.api_keys:
            if key.traffic_class is not None:
                self._named(f"api_keys: traffic_class of {key.name!r}", key.traffic_class)
        for alias in config.aliases:
            self._named(f"aliases: traffic_class of {alias.name!r}", alias.traffic_class)
        self._by_tier: dict[str, TrafficClass] = {}
        for each in config.classes:
            for tier in each.service_tiers:
                if self._by_tier.setdefault(tier, each) is not each:
                    raise ConfigError(f"classes: service_tiers {tier!r} asks for two classes; leave it in one")
        self.aliases = Aliases(config)
        self.native_name = next((each.name for each in config.classes if each.pool == "native"), "native")

    def _named(self, field: str, name: str) -> TrafficClass:
        if name not in self._by_name:
            raise ConfigError(f"{field} = {name!r} is none of the classes {self.names}; name one of them")
        return self._by_name[name]

    @property
    def names(self) -> list[str]:
        """All names, in the configured order."""
        return list(self._by_name)

    def all(self) -> list[TrafficClass]:
        """All classes, in the configured order."""
        return list(self._by_name.values())

    def choose(self, key: ApiKey | None, headers: Mapping[str, str], body: Body) -> Choice:
        """The class of a request. ``body``: as the client sent it.

        Raises:
            BadRequest: the header counts, and names no configured class.
        """
        own = None if key is None or key.traffic_class is None else self._by_name[key.traffic_class]
        if own is not None and key is not None and not key.may_choose:
            return Choice(own, "key")
        if self._free or (key is not None and key.may_choose):
            if (name := headers.get(self._header)) is not None:
                return Choice(self._of_header(name), "header")
            tier = body.get("service_tier") if self._by_tier else None
            if isinstance(tier, str) and tier in self._by_tier:
                return Choice(self._by_tier[tier], "service_tier")
            if (alias := self.aliases.of(body)) is not None:
                return Choice(self._by_name[alias.traffic_class], "alias")
        return Choice(self.default, "default") if own is None else Choice(own, "key")

    def prepared(self, body: Body, key: ApiKey | None) -> Body:
        """The body for the servers of either tier: the real model's name, the tenant's salt, and no ``service_tier``
        that only this router knows.

        Raises:
            BadRequest: see ``router.tenancy.salted``.
        """
        body = salted(self.aliases.renamed(body), key)
        tier = body.get("service_tier") if self._by_tier else None
        if isinstance(tier, str) and tier in self._by_tier and tier not in VLLM_TIERS:
            body = body.changed({"service_tier": None})
        return body

    def _of_header(self, name: str) -> TrafficClass:
        try:
            return self._by_name[name.strip()]
        except KeyError:
            raise BadRequest(
                f"{self._header}: {name[:100]!r} is no traffic class here; send one of {self.names} or leave it out",
                param=self._header,
            ) from None


def _require_effect(traffic: TrafficClass) -> None:
    """Refuse settings of a class that could never do anything."""
    plain = TrafficClass(name=traffic.name, pool=traffic.pool)
    idle: tuple[str, ...] = ("queue_limit", "queue_wait_s", "fallback_wait_s", "weight")
    if traffic.pool == "native":
        why = "a native class has no queue; leave it out, or set pool = 'speed'"
    elif traffic.fallback == "none":
        idle, why = ("fallback_wait_s",), "the class has no fallback; leave it out, or set fallback = 'native'"
    else:
        return
    for name in idle:
        if (value := getattr(traffic, name)) != getattr(plain, name):
            raise ConfigError(f"classes: {name} = {value!r} of {traffic.name!r}: {why}")
