"""Which headers travel on.

Invariant (R7): hop-by-hop headers (RFC 9110, 7.6.1), and those that a ``Connection`` header names, never
cross the router. Request id and trace context (``traceparent``, ``tracestate``, ``baggage``) go to every server that
works on a request; what ``router.identity`` makes of the client's key goes to vLLM servers alone.
"""

from collections.abc import Iterator, Mapping

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

__all__ = ["ONWARD", "back", "cleared", "json_headers", "onward", "traced"]

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Set anew by each hop's own HTTP library; request bodies have been decompressed by the time they travel on.
REMADE = frozenset({"host", "content-length", "content-encoding", "expect"})
TRACED = ("x-request-id", "traceparent", "tracestate", "baggage")
ONWARD: "web.RequestKey[CIMultiDict[str]]" = web.RequestKey("onward", CIMultiDict)


def _named(headers: CIMultiDictProxy[str]) -> Iterator[str]:
    for value in headers.getall("connection", ()):
        for name in value.split(","):
            yield name.strip().lower()


def _without(headers: CIMultiDictProxy[str], drop: frozenset[str]) -> CIMultiDict[str]:
    gone = HOP_BY_HOP | drop | set(_named(headers))
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in gone)


def onward(request: web.Request) -> CIMultiDict[str]:
    """End-to-end headers of a client's request, for a vLLM server; see ``router.identity``."""
    own: CIMultiDict[str] | None = request.get(ONWARD)
    return cleared(request.headers) if own is None else own.copy()


def cleared(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """End-to-end headers of a request, as the client sent them."""
    return _without(headers, REMADE)


def back(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """End-to-end headers of a server's reply, for the client; its length and encoding stay as they are."""
    return _without(headers, frozenset())


def traced(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that tie one request's legs together, for decode nodes."""
    return {name: headers[name] for name in TRACED if name in headers}


def json_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The headers with a body that the router has written: uncompressed JSON, both ways."""
    made = CIMultiDict(headers)
    made.popall("accept-encoding", None)
    made["content-type"] = "application/json"
    return made
