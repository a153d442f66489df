"""The demo from start to verdict, against a stand-in for the stack."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from deploy.demo import DemoConfig, DemoFailed
from deploy.demo.show import show
from deploy.processes import Part, PartFailed, free_ports
from deploy.up import Deployment, UpConfig

FRONT = Path(__file__).with_name("front.py")


def stand_in(directory: Path, fault: str) -> Callable[[UpConfig], Deployment]:
    def plan(config: UpConfig) -> Deployment:
        port = free_ports(1)[0]
        url = f"http://127.0.0.1:{port}"
        command = (sys.executable, str(FRONT), f"--port={port}", f"--fault={fault}")
        return Deployment(
            parts=(Part(name="front", command=command, health=f"{url}/health"),),
            directory=directory,
            model=directory,
            dtype="float32",
            served_name=config.model,
            vllm_url=url,
            decode_url=url,
            router_url=url,
        )

    return plan


async def run(tmp_path: Path, fault: str = "", terminal: bool = False, **settings: object) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal, highlight=False)
    config = DemoConfig(**({"model": "tiny-gqa", "tokens": 8, "rounds": 1} | settings))
    try:
        await show(config, console, stand_in(tmp_path, fault))
    finally:
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        (tmp_path / "printed").write_text(printed)
    return printed


async def test_both_models_end_with_a_table_and_the_count_of_identical_tokens(tmp_path: Path) -> None:
    printed = await run(tmp_path, model="both")
    assert printed.count("identical tokens: 64 of 64") == 2
    for part in ("tiny-mla, float32", "tiny-gqa, float32", "time to first token, ms", "tokens/s/user", "speed tier"):
        assert part in printed


async def test_a_terminal_sees_both_answers_side_by_side_and_no_control_bytes_of_theirs(tmp_path: Path) -> None:
    printed = await run(tmp_path, terminal=True)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)
    assert re.search(r"│ +w0 +w1 .*││ +w0 +w1 ", plain)
    assert "\x1b" not in plain


async def test_one_different_token_fails_it_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match=r"tiny-gqa: token 3 is 7 on the speed tier, 3 on the native one"):
        await run(tmp_path, "differ")
    assert "identical tokens: 54 of 64" in (tmp_path / "printed").read_text()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("fallback", r"asked the speed tier, served by native \(fallback: logprobs\)"),
        ("cut", "speed tier ended its stream after 3 tokens without a finish reason"),
        ("error", "speed tier: .*state lost"),
        ("refuse", "speed tier answered 429.*no slot is free"),
    ],
)
async def test_an_answer_that_is_none_fails_it(tmp_path: Path, fault: str, said: str) -> None:
    with pytest.raises(DemoFailed, match=said):
        await run(tmp_path, fault)


async def test_a_part_that_dies_meanwhile_fails_it_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(PartFailed, match="front ended with status 7; its log is"):
        await run(tmp_path, "die")
