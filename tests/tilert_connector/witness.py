"""A connector for tests alone: it writes the cache blocks of a finished request, as they lie, to a file.

Marked by `kv_transfer_params.witness`: the file. It is loaded beside ours and shares nothing with it.
"""

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA


@dataclass
class WitnessMetadata(KVConnectorMetadata):
    """(request, block ids, file) of what has finished."""

    finished: list[tuple[str, list[int], str]] = field(default_factory=list)


class Witness(KVConnectorBase_V1, SupportsHMA):
    """Holds a finished request's blocks for one step, and copies them in it."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._finished: list[tuple[str, list[int], str]] = []
        self._written: set[str] = set()
        self._caches: dict[str, Any] = {}

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        return

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        file = (request.kv_transfer_params or {}).get("witness")
        if not file:
            return False, None
        self._finished.append((request.request_id, block_ids, file))
        return True, None

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        return self.request_finished(request, block_ids[0])

    def build_connector_meta(self, scheduler_output: Any) -> WitnessMetadata:
        metadata, self._finished = WitnessMetadata(self._finished), []
        return metadata

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._caches = kv_caches

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        return

    def wait_for_layer_load(self, layer_name: str) -> None:
        return

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        return

    def wait_for_save(self) -> None:
        metadata = self._connector_metadata
        for request, blocks, file in metadata.finished if isinstance(metadata, WitnessMetadata) else ():
            with open(f"{file}.part", "wb") as out:
                np.savez(out, **{name: cache[blocks].numpy() for name, cache in self._caches.items()})
            os.replace(f"{file}.part", file)
            self._written.add(request)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, None]:
        written, self._written = self._written, set()
        return written or None, None
