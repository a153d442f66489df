"""The client's request body: bytes that travel on unchanged, and a look at its top-level fields.

Invariant (R7): no body that carries ``kv_transfer_params`` in any spelling that vLLM would read gets past
this module. vLLM decodes with Python's ``json``, which also takes UTF-16, UTF-32 and numbers that are no
JSON; what cannot be looked into here is only let through when those bytes cannot spell the name.
"""

import re
from collections.abc import Mapping

import msgspec

from router.errors import BadRequest

__all__ = ["Body", "look", "look_form"]

FORBIDDEN = "kv_transfer_params"
_EXTRA = b"vllm_xargs"
_CHARSET = re.compile(r"charset\s*=\s*([^;]*)", re.IGNORECASE)
_ENCODED_NAME = re.compile(rb"content-disposition\s*:[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*;\s*name\*", re.IGNORECASE)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Body(msgspec.Struct, frozen=True):
    """A request body.

    ``raw``: the bytes. ``fields``: top-level names and their undecoded values, or None when the bytes are no
    JSON object.
    """

    raw: bytes
    fields: dict[str, msgspec.Raw] | None

    def get(self, name: str) -> object:
        """A field's decoded value; None where it is missing or the body is no object.

        Raises:
            BadRequest: its value cannot be decoded, such as a string that is not UTF-8.
        """
        value = (self.fields or {}).get(name)
        try:
            return None if value is None else msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise BadRequest(f"`{name}` cannot be decoded: {error}", param=name) from None

    def changed(self, values: Mapping[str, object]) -> "Body":
        """The body with other values for some fields; all others keep their bytes. ``fields`` must be there."""
        assert self.fields is not None, "only an object has fields"
        fields = {**self.fields, **{name: msgspec.Raw(msgspec.json.encode(value)) for name, value in values.items()}}
        return Body(msgspec.json.encode(fields), fields)


def look(raw: bytes) -> Body:
    """Look into a body.

    Raises:
        BadRequest: it carries ``kv_transfer_params``, or might in an encoding that is not looked into; or it is nested
            so deeply (about 1000 levels) that vLLM's parser would give up as well.
    """
    try:
        fields = _FIELDS.decode(raw)
        extra = msgspec.json.decode(fields.get("vllm_xargs", b"{}"))
    except RecursionError:
        raise _deep() from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        try:
            msgspec.json.decode(raw, type=msgspec.Raw)
        except RecursionError:
            raise _deep() from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        if FORBIDDEN.encode() in raw or b"\\u" in raw or b"\0" in raw:
            raise BadRequest(
                "The request body is not JSON in UTF-8 with whole characters, so it cannot be looked into: "
                f"{error}. Send UTF-8 without a byte order mark and without unpaired surrogates."
            ) from None
        return Body(raw, None)
    if FORBIDDEN in fields or (isinstance(extra, dict) and FORBIDDEN in extra):
        raise _forbidden()
    return Body(raw, fields)


def look_form(raw: bytes, content_type: str) -> None:
    """Look into a ``multipart/form-data`` body, which travels on untouched.

    vLLM reads the field ``vllm_xargs`` as JSON, and all fields in the charset of the content type.

    Raises:
        BadRequest: as ``look``; and for what a form needs not and could hide a name: another charset, encoded names.
    """
    if charset := _CHARSET.search(content_type):
        name = charset[1].strip("\"' ").lower()
        if name not in ("utf-8", "utf8", "us-ascii"):
            raise BadRequest(f"A form in charset {name[:40]!r} is not taken; send UTF-8.")
    if FORBIDDEN.encode() in raw:
        raise _forbidden()
    if _ENCODED_NAME.search(raw):
        raise BadRequest("A form with an encoded field name (name*=) is not taken; write the name as it is.")
    at = raw.find(_EXTRA)
    while at >= 0:
        end = raw.find(b"\r\n--", at)
        if b"\\u" in raw[at : end if end >= 0 else len(raw)]:
            raise BadRequest("vllm_xargs of a form may hold no \\u escapes; write the characters as they are.")
        at = raw.find(_EXTRA, at + 1)


def _deep() -> BadRequest:
    return BadRequest("The request body is nested too deeply; send fewer levels.")


def _forbidden() -> BadRequest:
    return BadRequest(
        f"{FORBIDDEN} cannot be set by a client: the router decides where attention state goes. Remove the field.",
        param=FORBIDDEN,
    )
