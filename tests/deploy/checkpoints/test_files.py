"""The files of a checkpoint: the same bytes each time, complete, and as Hugging Face has them."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from deploy.checkpoints import NAMES, CheckpointError, build, ensure
from deploy.checkpoints.weights import write_weights


def digests(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_another_process_with_other_threads_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    code = "import sys, pathlib, deploy.checkpoints as c; c.build(sys.argv[1], pathlib.Path(sys.argv[2]))"
    for threads in ("1", "7"):
        environment = {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads, "PATH": ""}
        command = [sys.executable, "-c", code, name, str(tmp_path / threads)]
        subprocess.run(command, env=environment, check=True, timeout=120)
    assert digests(tmp_path / "1") == digests(tmp_path / "7")
    assert set(digests(tmp_path / "1")) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_dtypes_differ_only_in_rounding(tmp_path: Path) -> None:
    full, half = build("tiny-mla", tmp_path / "f"), build("tiny-mla", tmp_path / "b", "bfloat16")
    assert json.loads((half / "config.json").read_text())["dtype"] == "bfloat16"
    with safe_open(full / "model.safetensors", "numpy") as one, safe_open(half / "model.safetensors", "pt") as two:
        assert set(one.keys()) == set(two.keys())
        for name in one.keys():  # noqa: SIM118  (not a mapping)
            wide, narrow = one.get_tensor(name), two.get_tensor(name)
            np.testing.assert_allclose(narrow.float().numpy(), wide, rtol=2**-8)
            if name.endswith("e_score_correction_bias"):
                assert str(narrow.dtype) == "torch.float32"


def test_bfloat16_rounds_to_nearest_even(tmp_path: Path) -> None:
    import torch

    values = np.random.RandomState(0).standard_normal(4096).astype(np.float32)
    ties = np.array([0x3F808000, 0x3F818000, 0xBF808000], dtype=np.uint32).view(np.float32)
    values = np.concatenate([values, ties])
    write_weights(tmp_path / "w", {"x": values}, "bfloat16")
    with safe_open(tmp_path / "w", "pt") as file:
        assert torch.equal(file.get_tensor("x"), torch.from_numpy(values).bfloat16())


def test_the_draft_layer_is_there_under_deepseeks_names() -> None:
    with safe_open(ensure("tiny-mla") / "model.safetensors", "numpy") as file:
        names = {name.removeprefix("model.layers.3.") for name in file.keys() if ".layers.3." in name}  # noqa: SIM118
        shape = file.get_slice("model.layers.3.eh_proj.weight").get_shape()
    assert {"enorm.weight", "hnorm.weight", "eh_proj.weight", "embed_tokens.weight"} <= names
    assert {"shared_head.norm.weight", "shared_head.head.weight", "mlp.experts.7.down_proj.weight"} <= names
    assert shape == [256, 512]


def test_ensure_builds_once_and_again_when_stale(tmp_path: Path) -> None:
    first = ensure("tiny-gqa", root=tmp_path)
    marker = first / "marker"
    marker.touch()
    assert ensure("tiny-gqa", root=tmp_path) == first and marker.exists()
    (tmp_path / ".tiny-gqa.recipe").write_text("older")
    assert ensure("tiny-gqa", root=tmp_path) == first and not marker.exists()
    assert ensure("tiny-gqa", "bfloat16", root=tmp_path) == tmp_path / "tiny-gqa-bfloat16"


@pytest.mark.parametrize(("name", "dtype"), [("tiny", "float32"), ("tiny-mla", "float8")])
def test_an_unknown_name_or_dtype_is_refused_with_the_known_ones(name: str, dtype: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"unknown; take one of"):
        build(name, tmp_path / "x", dtype)
    assert list(tmp_path.iterdir()) == []
