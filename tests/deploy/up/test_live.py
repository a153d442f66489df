"""`speedtier up` with a real vLLM: both tiers say what transformers says, and every end leaves nothing behind."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from tokenizers import Tokenizer

from deploy.checkpoints import NAMES, ensure
from deploy.checkpoints.place import checkout
from deploy.processes.guard import descendants
from tests.deploy.checkpoints.oracle import greedy, load, prompts

LENGTHS = (1, 15, 16, 17, 129)


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def stack(name: str, directory: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A running `speedtier up` and its URL; killed at the end if it is still there."""
    command = [sys.executable, "-m", "deploy.cli", "up", "--model", name, "--port", "0", "--directory", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as launcher:
        try:
            printed = ""
            assert launcher.stdout is not None
            for line in launcher.stdout:
                printed += line
                if found := re.search(r"serving \S+ at (http://\S+)/v1", line):
                    yield launcher, found[1]
                    return
            pytest.fail(f"up did not come up:\n{printed}")
        finally:
            launcher.kill()


def assert_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + 5
    while any(map(alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [process for process in processes if alive(process)] == []


async def said(url: str, name: str, tier: str, prompt: list[int]) -> list[int]:
    body = {"model": name, "prompt": prompt, "max_tokens": 64, "temperature": 0, "return_token_ids": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/completions", json=body, headers={"x-traffic-class": tier}) as reply,
    ):
        content = await reply.json()
        assert reply.status == 200, content
        assert reply.headers["x-speedtier-class"] == tier
        return [int(token) for token in content["choices"][0]["token_ids"]]


def expected(name: str) -> list[tuple[list[int], list[int]]]:
    """Prompts and transformers' greedy tokens, cut after the end token as a server does."""
    path = ensure(name)
    settings = json.loads((path / "config.json").read_text())
    text = ((checkout() or Path()) / "LICENSE").read_text()
    corpus = Tokenizer.from_file(str(path / "tokenizer.json")).encode(text).ids
    model, pairs = load(path), []
    for length in LENGTHS:
        asked = prompts(length, 2, settings["vocab_size"], corpus)
        for prompt, one in zip(asked, greedy(model, asked, 64), strict=True):
            end = one.tokens.index(settings["eos_token_id"]) + 1 if settings["eos_token_id"] in one.tokens else 64
            pairs.append((prompt, one.tokens[:end]))
    return pairs


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries that transformers loads
@pytest.mark.parametrize(("name", "end"), list(zip(NAMES, ("interrupt", "death"), strict=True)))
def test_both_tiers_say_what_transformers_says_and_nothing_stays(name: str, end: str, tmp_path: Path) -> None:
    with stack(name, tmp_path) as (launcher, url):
        processes = descendants(launcher.pid)
        assert len(processes) >= 7, "three guards, three parts and vLLM's engine"
        for prompt, tokens in expected(name):
            for tier in ("native", "speed"):
                assert asyncio.run(said(url, name, tier, prompt)) == tokens, (tier, len(prompt))
        if end == "interrupt":
            launcher.send_signal(signal.SIGINT)
            assert launcher.wait(30) == 130
        else:
            os.kill(next(one for one in processes if "EngineCore" in title(one)), signal.SIGKILL)
            assert launcher.wait(60) == 1
    assert_gone(processes)


def title(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
