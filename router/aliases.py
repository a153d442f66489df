"""Model names that the operator gives to a model and a class.

Invariant: no server ever sees an alias: the body's ``model`` is the real name by then, and all other fields are the
client's own bytes.
"""

from typing import Any

import msgspec

from router.body import Body
from router.config import ModelAlias, RouterConfig
from speedtier.errors import ConfigError

__all__ = ["Aliases"]


class Aliases:
    """The configured aliases by name.

    Raises:
        ConfigError: two share a name, or one stands for another.
    """

    def __init__(self, config: RouterConfig) -> None:
        self._by_name = {each.name: each for each in config.aliases}
        names = [each.name for each in config.aliases]
        if len(self._by_name) != len(names):
            raise ConfigError(f"aliases = {names}: names must differ")
        for each in config.aliases:
            if each.model in self._by_name:
                raise ConfigError(f"aliases: {each.name!r} stands for {each.model!r}, an alias too; name the model")

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def of(self, body: Body) -> ModelAlias | None:
        """The alias that a body asks for."""
        if not self._by_name:
            return None
        model = body.get("model")
        return self._by_name.get(model) if isinstance(model, str) else None

    def renamed(self, body: Body) -> Body:
        """The body with the real model's name."""
        alias = self.of(body)
        return body if alias is None else body.changed({"model": alias.model})

    def listed(self, raw: bytes) -> bytes:
        """A server's ``/v1/models`` with a card more for each alias of a model that it serves; what is no such list
        stays as it is."""
        try:
            listing: Any = msgspec.json.decode(raw)
            cards = {card["id"]: card for card in listing["data"]}
        except (msgspec.MsgspecError, TypeError, KeyError):
            return raw
        more = [
            {**cards[each.model], "id": each.name, "root": each.model}
            for each in self._by_name.values()
            if each.model in cards and each.name not in cards
        ]
        return msgspec.json.encode({**listing, "data": [*listing["data"], *more]})
