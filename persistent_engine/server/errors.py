"""Errors of the decode node as they travel: `{"error": {message, type, code}}` with an HTTP status."""

from aiohttp import web

from speedtier.errors import SpeedtierError

__all__ = ["Answer", "error_body"]


class Answer(SpeedtierError):
    """An error that is the answer to a request."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    def response(self) -> web.Response:
        """The HTTP response; 429 says when to come again."""
        headers = {"Retry-After": "1"} if self.status == 429 else None
        return web.json_response(error_body(self), status=self.status, headers=headers)


def error_body(error: Answer) -> dict[str, dict[str, str]]:
    """The JSON object of an error."""
    kind = "invalid_request_error" if error.status < 500 and error.status != 429 else "server_error"
    return {"error": {"message": str(error), "type": kind, "code": error.code}}
