"""What two nodes must have in common before one may write into the other's memory.

Invariant: equal fingerprints mean that a state written by one node is the state that the other's own
prefill would have left, byte for byte in the same place.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import xxhash

from tilert_connector.errors import LayoutError
from tilert_connector.layout.kv_layout import KvLayout
from tilert_connector.layout.weights import weights_digest

__all__ = ["PROTOCOL", "Fingerprint", "difference", "fingerprint", "model_name", "read_config"]

Text = Annotated[str, msgspec.Meta(max_length=4096)]
PROTOCOL: Final = 2
"""Raised with every change to messages or frames that an older peer cannot follow."""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each field is compared alone, so that a refusal can name it.

    planes: digest of every plane's name, width, item size and tile. layers: layer indices in order,
    draft layers included. rope: canonical JSON of the rope settings. block_size: tokens per tile that
    the wire and the slot share (1: rows, no tiles). settings: digest of config.json. weights: see `weights_digest`.
    """

    protocol: int
    family: Text
    architecture: Text
    revision: Text
    weights: Text
    weights_dtype: Text
    kv_dtype: Text
    scale_format: Text
    block_size: int
    layers: Text
    planes: Text
    rope: Text
    settings: Text


def difference(ours: Fingerprint, theirs: Fingerprint) -> tuple[str, Any, Any] | None:
    """(field, our value, their value) of the first field that differs, or None."""
    for field in Fingerprint.__struct_fields__:
        mine, other = getattr(ours, field), getattr(theirs, field)
        if mine != other:
            return field, mine, other
    return None


def model_name(mark: Fingerprint) -> str:
    """One name for all that the fingerprint says: state of equal names is interchangeable."""
    return xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(mark))


def fingerprint(
    model_dir: Path | str,
    layout: KvLayout,
    *,
    weights_dtype: str,
    kv_dtype: str,
    revision: str = "",
    scale_format: str = "none",
    weights: str = "",
    overrides: dict[str, Any] | None = None,
) -> Fingerprint:
    """The fingerprint of the Hugging Face checkpoint in `model_dir`, run with this layout.

    weights_dtype, kv_dtype: torch's names without the prefix (`float32`, `bfloat16`), as the node computes,
    not as the files store. weights: a digest to use instead of reading the files. overrides: config.json
    keys that the node overrides. Raises LayoutError.
    """
    config = {**read_config(model_dir), **(overrides or {})}
    architectures = config.get("architectures") or [config.get("model_type", "")]
    return Fingerprint(
        protocol=PROTOCOL,
        family=layout.family,
        architecture=str(architectures[0]),
        revision=revision,
        weights=weights or weights_digest(model_dir),
        weights_dtype=weights_dtype,
        kv_dtype=kv_dtype,
        scale_format=scale_format,
        block_size=max(plane.tile for plane in layout.planes),
        layers=",".join(dict.fromkeys(plane.name.split(".")[1] for plane in layout.planes)),
        planes=xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(layout)),
        rope=_rope(config),
        settings=_settings(config),
    )


def _settings(config: dict[str, Any]) -> str:
    """Digest of all that config.json says of the model, but for dtype (a field of its own) and who wrote it when."""
    aside = ("dtype", "torch_dtype", "transformers_version", "_name_or_path", "use_cache")
    said = {key: value for key, value in config.items() if key not in aside}
    return xxhash.xxh3_128_hexdigest(json.dumps(said, sort_keys=True).encode())


def read_config(model_dir: Path | str) -> dict[str, Any]:
    """The checkpoint's config.json. Raises LayoutError if it cannot be read."""
    path = Path(model_dir) / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise LayoutError(f"model_dir: cannot read {str(path)!r}: {error}") from error
    if not isinstance(config, dict):
        raise LayoutError(f"model_dir: {str(path)!r} is not a JSON object")
    return config


def _rope(config: dict[str, Any]) -> str:
    """Every setting that turns a position into rotations; both spellings that transformers wrote."""
    keys = ("rope_parameters", "rope_theta", "rope_scaling", "partial_rotary_factor", "rope_interleave")
    settings = {key: config[key] for key in keys if config.get(key) is not None}
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))
