"""Clients cannot set ``kv_transfer_params`` (R7), in no spelling and on no class."""

import json

import pytest

from router.body import look, look_form
from router.errors import BadRequest
from tests.router.stack import CHAT, COMPLETIONS, SPEED, Open

pytestmark = pytest.mark.contract("R7")
MARK = {"tilert_host": "evil.invalid", "tilert_ctrl_port": 1}
PLAIN = json.dumps({"model": "tiny", "prompt": "x", "kv_transfer_params": MARK})
SPELLINGS = {
    "plain": PLAIN.encode(),
    "null": json.dumps({"kv_transfer_params": None}).encode(),
    "escaped": PLAIN.replace("kv_", "\\u006bv_").encode(),
    "utf-16": PLAIN.encode("utf-16"),
    "utf-16-be": PLAIN.encode("utf-16-be"),
    "utf-32": PLAIN.encode("utf-32"),
    "bom": b"\xef\xbb\xbf" + PLAIN.encode(),
    "with a number that is no JSON": PLAIN.replace('"x"', "NaN").encode(),
    "escaped, with a number that is no JSON": PLAIN.replace('"x"', "NaN").replace("kv_", "\\u006bv_").encode(),
    "first of two": b'{"kv_transfer_params": {"tilert_host": "a"}, "kv_transfer_params": null}',
    "among the extra arguments": json.dumps({"vllm_xargs": {"kv_transfer_params": "x"}}).encode(),
    "escaped among the extra arguments": b'{"vllm_xargs": {"\\u006bv_transfer_params": "x"}}',
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("headers", [SPEED, {}])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_the_field_is_refused(open_stack: Open, spelling: str, headers: dict[str, str], path: str) -> None:
    stack = await open_stack()
    headers = {**headers, "content-type": "application/json"}
    async with stack.session.post(stack.url + path, data=SPELLINGS[spelling], headers=headers) as reply:
        assert reply.status == 400
        assert (await reply.json())["error"]["type"] == "BadRequestError"
    assert stack.prefill.calls == []


@pytest.mark.parametrize(
    "raw",
    [
        b"{nope",
        b"[1]",
        b"\xff\xfe{",
        b'{"a": NaN}',
    ],
)
def test_other_bodies_that_cannot_be_read_are_left_to_the_server(raw: bytes) -> None:
    assert look(raw).fields is None


def test_a_prompt_may_speak_of_it() -> None:
    body = look(json.dumps({"prompt": "what is kv_transfer_params? \u65e5"}).encode())
    assert body.get("prompt") == "what is kv_transfer_params? \u65e5"
    assert body.get("missing") is None


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 100_000 + b'"\\u0041"', b"[" * 9_999 + b"]" * 9_999])
def test_a_deep_body_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="too deeply"):
        look(raw)


def form(*parts: tuple[str, str], disposition: str = "form-data; name") -> bytes:
    return b"".join(
        f'--b\r\nContent-Disposition: {disposition}="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in parts
    )


AUDIO = ("file", "RIFF \\u0041 \\u0042")
FORMS = {
    "a field": (form(AUDIO, ("kv_transfer_params", "{}")), ""),
    "among the extra arguments": (form(("vllm_xargs", '{"kv_transfer_params": "x"}'), AUDIO), ""),
    "escaped among them": (form(AUDIO, ("vllm_xargs", '{"\\u006bv_transfer_params": "x"}')), ""),
    "in another charset": (form(("vllm_xargs", "x")).decode().encode("utf-16"), "; charset=utf-16"),
    "under an encoded name": (form(("utf-8''vllm%5Fxargs", "{}"), disposition="form-data; name*"), ""),
    "under a folded encoded name": (form(("utf-8''vllm%5Fxargs", "{}"), disposition="form-data;\r\n name*"), ""),
}


@pytest.mark.parametrize("spelling", FORMS)
def test_the_field_is_refused_in_forms(spelling: str) -> None:
    raw, charset = FORMS[spelling]
    with pytest.raises(BadRequest):
        look_form(raw, "multipart/form-data; boundary=b" + charset)


def test_other_forms_are_taken() -> None:
    raw = form(AUDIO, ("vllm_xargs", '{"a": "x"}'), AUDIO, ("language", "日本"))
    look_form(raw, 'multipart/form-data; boundary=b; charset="UTF-8"')
