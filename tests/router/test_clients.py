"""The router's errors as OpenAI's and Anthropic's clients see them, and its streams as they read them."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from router import TrafficClass
from router.config import ApiKey
from router.fake import FakeDecode, FakeNative, FakePrefill, serving
from tests.router.stack import SPEED, Open, Stack

pytestmark = pytest.mark.contract("R2", "R8")
SAID: Any = [{"role": "user", "content": "the fox"}]
ONLY_SPEED = (TrafficClass(name="speed", pool="speed", fallback="none"), TrafficClass(name="native", pool="native"))


def client(stack: Stack, **settings: Any) -> openai.AsyncOpenAI:
    given = {"api_key": "any", "default_headers": SPEED, "max_retries": 0, "base_url": stack.url + "/v1"}
    return openai.AsyncOpenAI(**{**given, **settings})


@pytest.fixture
async def native() -> AsyncIterator[tuple[FakeNative, str]]:
    server = FakeNative()
    async with serving(server.app()) as url:
        yield server, url


async def test_a_stream_and_a_whole_reply(open_stack: Open) -> None:
    stack = await open_stack(nodes=[FakeDecode(tokens=[41, 42, 43])])
    async with client(stack) as one:
        whole = await one.chat.completions.create(model="tiny", messages=SAID, max_tokens=4)
        stream = await one.chat.completions.create(model="tiny", messages=SAID, max_tokens=4, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert whole.choices[0].message.content == text == stack.text([9, 41, 42, 43])
    assert whole.usage is not None and whole.usage.completion_tokens == 4


@pytest.mark.parametrize(("fault", "status"), [("crash", 502), ("hang", 504)])
async def test_failures_of_the_speed_tier(open_stack: Open, model_dir: Path, fault: Any, status: int) -> None:
    server = FakePrefill(model_dir, render_fault=fault)
    stack = await open_stack(server, classes=ONLY_SPEED, timeouts={"render": 0.3})
    async with client(stack) as one:
        with pytest.raises(openai.InternalServerError) as failed:
            await one.chat.completions.create(model="tiny", messages=SAID)
    assert failed.value.status_code == status and failed.value.request_id and failed.value.body


async def test_a_full_queue_is_a_rate_limit(open_stack: Open) -> None:
    stack = await open_stack(nodes=[FakeDecode(tokens=[41] * 200, pace_s=0.05)], queue_limit=0, classes=ONLY_SPEED)
    async with client(stack) as one:
        held = await one.chat.completions.create(model="tiny", messages=SAID, max_tokens=200, stream=True)
        with pytest.raises(openai.RateLimitError) as refused:
            await one.chat.completions.create(model="tiny", messages=SAID, max_tokens=4)
        await held.close()
    assert int(refused.value.response.headers["retry-after"]) >= 1


async def test_an_error_in_the_middle_of_a_stream_is_raised(open_stack: Open, model_dir: Path) -> None:
    event = b'data: {"choices": []}\n\n'
    server = FakePrefill(model_dir, cut_native=1, native_events=(event, event), native_pace_s=0.01)
    stack = await open_stack(server)
    async with client(stack, default_headers={}) as one:
        stream = await one.chat.completions.create(model="tiny", messages=SAID, stream=True)
        with pytest.raises(openai.APIError, match="broke off"):
            async for _ in stream:
                pass


async def test_refusals_of_prefill_servers_and_of_the_router(open_stack: Open, model_dir: Path) -> None:
    stack = await open_stack(FakePrefill(model_dir, generate_fault="refuse"), classes=ONLY_SPEED)
    async with client(stack) as one:
        with pytest.raises(openai.BadRequestError, match="no such thing") as refused:
            await one.chat.completions.create(model="tiny", messages=SAID)
        assert refused.value.param == "thing"
        with pytest.raises(openai.NotFoundError):
            await one.chat.completions.create(model="nobody", messages=SAID)
        with pytest.raises(openai.BadRequestError, match="kv_transfer_params"):
            await one.embeddings.create(model="tiny", input="x", extra_body={"kv_transfer_params": {}})
        with pytest.raises(openai.NotFoundError, match="no endpoint"):
            await one.files.list()


async def test_keys(open_stack: Open, native: tuple[FakeNative, str]) -> None:
    _, url = native
    key = ApiKey(name="me", sha256=hashlib.sha256(b"right").hexdigest())
    stack = await open_stack(native=(url,), api_keys=(key,))
    async with client(stack) as wrong, client(stack, api_key="right") as right:
        with pytest.raises(openai.AuthenticationError):
            await wrong.models.list()
        await right.models.list()
    theirs = {"base_url": stack.url, "max_retries": 0}
    async with anthropic.AsyncAnthropic(api_key="wrong", **theirs) as wrong_one:  # type: ignore[arg-type]
        with pytest.raises(anthropic.AuthenticationError):
            await wrong_one.messages.create(model="tiny", max_tokens=1, messages=SAID)
    async with anthropic.AsyncAnthropic(api_key="right", **theirs) as right_one:  # type: ignore[arg-type]
        await right_one.messages.create(model="tiny", max_tokens=1, messages=SAID)


@pytest.mark.parametrize(("status", "kind"), [(429, anthropic.RateLimitError), (529, anthropic.InternalServerError)])
async def test_the_native_servers_errors_are_its_own(
    open_stack: Open, native: tuple[FakeNative, str], status: int, kind: type
) -> None:
    server, url = native
    server.status, server.body = status, b'{"type":"error","error":{"type":"overloaded_error","message":"full"}}'
    stack = await open_stack(native=(url,))
    async with anthropic.AsyncAnthropic(api_key="any", base_url=stack.url, max_retries=0) as one:
        with pytest.raises(kind, match="full"):
            await one.messages.create(model="tiny", max_tokens=1, messages=SAID)
