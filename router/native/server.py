"""One choice of a pool: a vLLM server, or two that exchange state.

Invariant: each server behind the router has one ``Health``, however many pairs it is part of.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from router.health import Health

__all__ = ["Server"]


@dataclass(eq=False, slots=True)
class Server:
    """A server and how it is.

    ``url`` and ``health``: of the server that answers clients. ``prefill_url`` and ``prefill_health``: of the one that
    prefills for it, in a pair. ``load``: requests that it holds now. ``draining``: it gets no new ones.
    """

    url: str
    health: Health
    prefill_url: str | None = None
    prefill_health: Health | None = None
    load: int = 0
    draining: bool = False

    @property
    def name(self) -> str:
        """Its address; of a pair, both."""
        own = urlsplit(self.url).netloc
        return own if self.prefill_url is None else f"{urlsplit(self.prefill_url).netloc}+{own}"

    @property
    def parts(self) -> tuple[Health, ...]:
        """The health of each server in it."""
        return (self.health,) if self.prefill_health is None else (self.prefill_health, self.health)

    @property
    def healthy(self) -> bool:
        """Whether all of it could be reached when it was last asked."""
        return all(part.healthy for part in self.parts)

    @property
    def usable(self) -> bool:
        """Whether a request may go there now."""
        return all(part.usable for part in self.parts)

    @property
    def last_error(self) -> str:
        """What was last wrong; empty while nothing ever was."""
        return next((part.last_error for part in self.parts if not part.healthy), "") or self.health.last_error
