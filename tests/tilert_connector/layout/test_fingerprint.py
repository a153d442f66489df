"""Each thing that must agree is a field that differs when it does not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tilert_connector.errors import LayoutError
from tilert_connector.layout import difference, fingerprint, gqa_layout, mla_layout, weights_digest

CONFIG = {"architectures": ["Tiny"], "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}


def checkpoint(directory: Path, **changes: Any) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    save_file({"a": np.ones((4, 4), np.float32), "b": np.zeros(3, np.float16)}, directory / "model.safetensors")
    return directory


@pytest.mark.contract("H7")
def test_equal_checkpoints_have_equal_prints(tmp_path: Path) -> None:
    prints = [
        fingerprint(checkpoint(tmp_path / name), mla_layout([0, 1], 4), weights_dtype="float32", kv_dtype="float32")
        for name in ("one", "two")
    ]
    assert difference(*prints) is None


@pytest.mark.contract("H7")
@pytest.mark.parametrize(
    ("field", "config", "arguments"),
    [
        ("architecture", {"architectures": ["Other"]}, {}),
        ("rope", {"rope_parameters": {"rope_theta": 5.0, "rope_type": "default"}}, {}),
        ("rope", {"rope_scaling": {"type": "yarn", "factor": 4}}, {}),
        ("rope", {}, {"overrides": {"rope_theta": 7}}),
        ("settings", {"rms_norm_eps": 1e-5}, {}),
        ("settings", {"hidden_act": "gelu"}, {}),
        ("weights", {}, {"weights": "mine"}),
        ("weights_dtype", {}, {"weights_dtype": "bfloat16"}),
        ("kv_dtype", {}, {"kv_dtype": "bfloat16"}),
        ("scale_format", {}, {"scale_format": "fp8_e4m3"}),
        ("revision", {}, {"revision": "abc"}),
        ("layers", {}, {"layout": gqa_layout([0, 1, 2], 4, 1, 8, 16)}),
        ("planes", {}, {"layout": gqa_layout([0, 1], 4, 2, 8, 16)}),
        ("block_size", {}, {"layout": gqa_layout([0, 1], 4, 1, 8, 32)}),
        ("family", {}, {"layout": mla_layout([0, 1], 4)}),
    ],
)
def test_a_difference_is_named(tmp_path: Path, field: str, config: dict[str, Any], arguments: dict[str, Any]) -> None:
    base: dict[str, Any] = {"weights_dtype": "float32", "kv_dtype": "float32"}
    base["layout"] = gqa_layout([0, 1], 4, 1, 8, 16)
    ours = fingerprint(checkpoint(tmp_path / "a"), **base)
    theirs = fingerprint(checkpoint(tmp_path / "b", **config), **{**base, **arguments})
    found = difference(ours, theirs)
    assert found is not None
    assert found == (field, getattr(ours, field), getattr(theirs, field))


@pytest.mark.contract("H7")
def test_the_digest_sees_values_names_types_and_shapes_but_not_files(tmp_path: Path) -> None:
    def digest(name: str, *shards: dict[str, Any]) -> str:
        (tmp_path / name).mkdir()
        for number, tensors in enumerate(shards):
            save_file(tensors, tmp_path / name / f"model-{number}.safetensors")
        return weights_digest(tmp_path / name)

    a, b = np.ones((4, 4), np.float32), np.zeros(3, np.float32)
    whole = digest("whole", {"a": a, "b": b})
    assert digest("shards", {"b": b}, {"a": a}) == whole
    others = [
        digest("value", {"a": a + 1, "b": b}),
        digest("name", {"a": a, "c": b}),
        digest("type", {"a": a.view(np.int32), "b": b}),
        digest("shape", {"a": a.reshape(2, 8), "b": b}),
        digest("less", {"a": a}),
    ]
    assert len({whole, *others}) == 6


@pytest.mark.contract("H7")
@pytest.mark.parametrize("place", [0, 5_000, 99_999])
def test_the_digest_sees_a_change_anywhere(tmp_path: Path, place: int) -> None:
    values = np.zeros(100_000, np.float32)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save_file({"a": values}, tmp_path / name / "model.safetensors")
        values[place] = 1
    assert weights_digest(tmp_path / "one") != weights_digest(tmp_path / "two")


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x10" + bytes(7) + b"{not json......"])
def test_broken_weights_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(LayoutError, match=r"model\.safetensors"):
        weights_digest(tmp_path)


def test_missing_files_are_named_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"no \*.safetensors .* give `weights` a name"):
        weights_digest(tmp_path)
    with pytest.raises(LayoutError, match=r"config\.json"):
        fingerprint(tmp_path, mla_layout([0], 4), weights_dtype="float32", kv_dtype="float32", weights="w")
