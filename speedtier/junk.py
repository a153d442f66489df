"""What an HTTP port logs of requests that are none.

Invariant: whoever sends junk adds one short line for it, with nothing in it that he chose but its class.
"""

import logging

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

__all__ = ["shorten_junk"]


class _Short(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError | RequestPayloadError):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = f"{record.getMessage()}: {type(error).__name__}", ()
            record.exc_info = record.exc_text = None
        return True


_SHORT = _Short()


def shorten_junk() -> None:
    """From now on, in this process. aiohttp itself logs a traceback with the bytes in it (`web_protocol.py`)."""
    logger = logging.getLogger("aiohttp.server")
    if _SHORT not in logger.filters:
        logger.addFilter(_SHORT)
