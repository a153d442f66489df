"""From a configuration to the parts of a stack; nothing is started."""

import json
from pathlib import Path

import pytest

from deploy.checkpoints import ensure
from deploy.up import KV_TRANSFER, UpConfig, VllmConfig, deployment
from speedtier.config import read
from speedtier.errors import ConfigError


def config(tmp_path: Path, **settings: object) -> UpConfig:
    return UpConfig(**({"model": "tiny-gqa", "port": 0, "directory": str(tmp_path)} | settings))


def test_the_parts_are_wired_to_each_other(tmp_path: Path) -> None:
    plan = deployment(config(tmp_path, served_name="served"))
    assert [part.name for part in plan.parts] == ["vllm", "decode", "router"]
    decode = json.loads((tmp_path / "decode.json").read_text())
    router = json.loads((tmp_path / "router.json").read_text())
    assert decode["model"] == router["tokenizer"] == str(ensure("tiny-gqa"))
    assert decode["dtype"] == "float32"
    assert router["prefill"] == router["native"] == [plan.vllm_url]
    assert router["decode"][0]["url"] == plan.decode_url == f"http://127.0.0.1:{decode['port']}"
    assert plan.router_url == f"http://127.0.0.1:{router['port']}"
    vllm = plan.parts[0]
    assert vllm.command[vllm.command.index("--served-model-name") + 1] == "served"
    assert json.loads(vllm.command[vllm.command.index("--kv-transfer-config") + 1]) == KV_TRANSFER


def test_a_vllm_of_ones_own_is_used_and_none_started(tmp_path: Path) -> None:
    plan = deployment(config(tmp_path, vllm=VllmConfig(url="http://127.0.0.1:9/")))
    assert [part.name for part in plan.parts] == ["decode", "router"]
    assert plan.vllm_url == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("model", "asked", "dtype"),
    [("tiny-gqa", "auto", "float32"), ("tiny-gqa", "bfloat16", "bfloat16"), ("half", "auto", "bfloat16")],
)
def test_both_ends_are_told_one_dtype(tmp_path: Path, model: str, asked: str, dtype: str) -> None:
    name = str(ensure("tiny-gqa", "bfloat16")) if model == "half" else model
    plan = deployment(config(tmp_path, model=name, dtype=asked))
    command = plan.parts[0].command
    assert command[command.index("--dtype") + 1] == plan.dtype == dtype
    assert json.loads((tmp_path / "decode.json").read_text())["dtype"] == dtype


def test_settings_of_the_parts_reach_them(tmp_path: Path) -> None:
    deployment(config(tmp_path, decode={"max_tokens": 512, "receiver": {"drain_s": 1.5}}, router={"queue_limit": 3}))
    decode = json.loads((tmp_path / "decode.json").read_text())
    assert decode["max_tokens"] == 512 and decode["receiver"]["drain_s"] == 1.5
    assert json.loads((tmp_path / "router.json").read_text())["queue_limit"] == 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"decode": {"slotz": 2}}, r"\[decode\]: slotz is not a known field; did you mean 'slots'"),
        ({"router": {"queue_limit": -1}}, r"\[router\]: queue_limit = -1"),
        ({"router": {"port": 1}}, r"router\.port = 1: the launcher sets it"),
        ({"model": "no/such/place"}, r"model = 'no/such/place': no config\.json there"),
    ],
)
def test_a_mistake_is_named_before_anything_starts(tmp_path: Path, settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        deployment(config(tmp_path, **settings))


def test_the_file_of_a_stack_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "stack.toml"
    path.write_text('model = "tiny-mla"\n[vllm]\nargument = []\n')
    with pytest.raises(ConfigError, match=r"vllm\.argument is not a known field; did you mean 'arguments'"):
        read(path, UpConfig)


@pytest.mark.parametrize("text", ['modle = "x"', 'model = "x"\n[vllm]\nurll = "y"', 'model = "x"\nport = 70000'])
def test_a_file_with_a_mistake_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "stack.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"modle|urll|port"):
        read(file, UpConfig)
