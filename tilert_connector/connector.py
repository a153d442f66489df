"""TileRTConnector: vLLM's hooks, each handed on in a line or two. Load it with
`kv_connector_module_path: tilert_connector.connector`, usually as a child of MultiConnector.

Invariant: for a request that is not claimed each hook does and returns what vLLM's base class does.
Hooks as of vllm/distributed/kv_transfer/kv_connector/v1/base.py, vLLM 0.32.
"""

import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm import _custom_ops as ops
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec
from vllm.v1.request import RequestStatus

from tilert_connector.authority import check_claim
from tilert_connector.cache import CacheFacts, WriteBlock, layer_index, open_sender, refusing_sender
from tilert_connector.claim import read_claim
from tilert_connector.config import read_config
from tilert_connector.errors import ClaimError, LayoutError, TicketError
from tilert_connector.layout.probe import Values, check_mla_rotation
from tilert_connector.logs import share_handlers
from tilert_connector.sender import Sender
from tilert_connector.stats import TileRTPromMetrics, TileRTStats
from tilert_connector.ticket import read_keys
from tilert_connector.tracker import Opening, Step, Tracker

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

__all__ = ["TileRTConnector", "TileRTMetadata"]

logger = logging.getLogger(__name__)
UNFINISHED_ENDS = (
    RequestStatus.FINISHED_ABORTED,
    RequestStatus.FINISHED_IGNORED,
    RequestStatus.FINISHED_ERROR,
)


@dataclass
class TileRTMetadata(KVConnectorMetadata):
    """What the scheduler side tells the workers about one step."""

    step: Step = field(default_factory=Step)


class TileRTConnector(KVConnectorBase_V1, SupportsHMA):
    """Both roles: a tracker in the scheduler's process, a sender in each worker's."""

    def __init__(self, vllm_config: "VllmConfig", role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        share_handlers("tilert_connector", "vllm")
        self._config = read_config(self._kv_transfer_config.kv_connector_extra_config)
        self._keys = read_keys(self._config.ticket_key_file)
        self._tracker = Tracker()
        self._refused: dict[str, str] = {}
        self._refusals = 0
        self._sender: Sender | None = None
        self._layers: dict[str, int] = {}

    @property
    def requires_kv_delivery(self) -> bool:
        """Whether vLLM, on preempting any request at all, drops the tokens of it that are being computed, and computes
        them again. Base class: yes for producers. No: it would change general requests; a handoff whose blocks are
        taken away while its last step runs has failed, which the router repairs.
        """
        return False

    # Scheduler side

    def on_new_request(self, request: "Request") -> None:
        try:
            claim = read_claim(request.kv_transfer_params)
            if claim is not None:
                check_claim(self._keys, claim, request.num_prompt_tokens)
        except (ClaimError, TicketError) as error:
            logger.warning("request %s is not handed off: %s", request.request_id, error)
            self._refused[request.request_id] = str(error)
            self._refusals += 1
            return
        if claim is not None:
            self._tracker.claim(
                Opening(
                    request=request.request_id,
                    claim=claim,
                    tokens=request.num_prompt_tokens,
                    refusal=_refusal(request),
                    prompt=_shareable(request),
                    salt=request.cache_salt or "",
                )
            )

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int | None, bool]:
        return 0, False

    def update_state_after_alloc(self, request: "Request", blocks: Any, num_external_tokens: int) -> None:
        return

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> TileRTMetadata:
        tracker = self._tracker
        if len(tracker):
            for request in scheduler_output.preempted_req_ids or ():
                tracker.preempt(request)
            scheduled = scheduler_output.num_scheduled_tokens
            for new in scheduler_output.scheduled_new_reqs:
                if new.req_id in tracker:
                    count = scheduled[new.req_id]
                    tracker.schedule(new.req_id, new.num_computed_tokens, count, new.block_ids[0], True)
            cached = scheduler_output.scheduled_cached_reqs
            for index, request in enumerate(cached.req_ids):
                if request in tracker:
                    blocks = cached.new_block_ids[index]
                    tracker.schedule(
                        request,
                        cached.num_computed_tokens[index],
                        scheduled[request],
                        blocks[0] if blocks else (),
                        request in cached.resumed_req_ids,
                    )
        return TileRTMetadata(tracker.step())

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        refused = self._refused.pop(request.request_id, None)
        if refused is not None:
            return False, {"tilert_refused": refused}
        return self._tracker.finish(request.request_id, request.status not in UNFINISHED_ENDS), None

    def request_finished_all_groups(
        self, request: "Request", block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, block_ids[0] if block_ids else [])

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        self._tracker.released(connector_output.finished_sending or ())

    def has_pending_push_work(self) -> bool:
        return self._tracker.delaying

    # Worker side

    def register_kv_caches(self, kv_caches: "dict[str, torch.Tensor]") -> None:
        try:
            facts = _facts(self._vllm_config, self._kv_cache_config)
            self._sender = open_sender(facts, self._config, kv_caches)
            self._layers = {name: position for position, name in enumerate(sorted(kv_caches, key=layer_index))}
        except LayoutError as error:
            logger.error("no attention state of this server can be handed off, all else is served: %s", error)
            self._sender = refusing_sender(self._config, get_tensor_model_parallel_rank(), str(error))

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        if self._sender is not None and isinstance(kv_connector_metadata, TileRTMetadata):
            self._sender.begin(kv_connector_metadata.step)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        return

    def wait_for_layer_load(self, layer_name: str) -> None:
        return

    def save_kv_layer(self, layer_name: str, kv_layer: "torch.Tensor", attn_metadata: Any, **kwargs: Any) -> None:
        if self._sender is not None and layer_name in self._layers:
            self._sender.save(self._layers[layer_name])

    def wait_for_save(self) -> None:
        metadata = self._connector_metadata
        if self._sender is not None and isinstance(metadata, TileRTMetadata):
            self._sender.advance(metadata.step)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        ended = self._sender.take_finished() if self._sender is not None else None
        return ended or None, None

    def get_kv_connector_stats(self) -> TileRTStats | None:
        if self._sender is not None and (records := self._sender.take_records()):
            return TileRTStats.of(records, self._sender.rank == 0)
        if self._refusals:
            stats, self._refusals = TileRTStats.refused(self._refusals), 0
            return stats
        return None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> TileRTStats:
        return TileRTStats(data)

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: "VllmConfig", metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> TileRTPromMetrics:
        return TileRTPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None


# MultiConnector finds the class of its children's statistics by name among registered connectors, also in the API
# server's process, which ends with an error where there is none (`MultiConnector.build_kv_connector_stats`).
with contextlib.suppress(ValueError):  # registered already, by a plugin
    KVConnectorFactory.register_connector(TileRTConnector.__name__, __name__, TileRTConnector.__name__)


def _refusal(request: "Request") -> str:
    """Why the state that vLLM computes for this request is not what the decode node would continue."""
    if request.lora_request is not None:
        return "the request uses a LoRA adapter, the decode node has the base weights"
    if request.resumable:
        return "the request is a streaming session, its prompt is not complete yet"
    return ""


def _shareable(request: "Request") -> bytes:
    """The token ids by which other prompts may find this state; none if ids do not say all of the prompt."""
    if request.mm_features or request.prompt_embeds is not None or request.prompt_token_ids is None:
        return b""
    return np.asarray(request.prompt_token_ids, "<u4").tobytes()


def _facts(vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig") -> CacheFacts:
    """What we need to know of vLLM's configuration. Raises LayoutError for what we cannot hand off."""
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    if vllm_config.device_config.device_type != "cpu":
        device = vllm_config.device_config.device_type
        raise LayoutError(f"device {device!r}: only caches in the CPU's memory can be handed off yet")
    spec: Any = _only_spec(kv_cache_config)
    if parallel.pipeline_parallel_size > 1 or parallel.decode_context_parallel_size > 1:
        raise LayoutError("pipeline and context parallel prefill nodes are not supported, use tensor parallel")
    common: dict[str, Any] = {
        "block_size": spec.block_size,
        "weights_dtype": str(model.dtype).removeprefix("torch."),
        "model_dir": _model_dir(model.model, model.revision),
        "revision": model.revision or "",
        "overrides": model.hf_overrides if isinstance(model.hf_overrides, dict) else {},
        "tensor_rank": get_tensor_model_parallel_rank(),
        "tensor_size": parallel.tensor_parallel_size,
    }
    if isinstance(spec, MLAAttentionSpec):
        if _rotates_in_kernel(vllm_config.compilation_config.custom_ops):
            check_mla_rotation(_rotate)
        text = model.hf_text_config
        return CacheFacts(family="mla", rank=text.kv_lora_rank, rope=text.qk_rope_head_dim, **common)
    return CacheFacts(
        family="gqa",
        kv_heads=model.get_total_num_kv_heads(),
        head_dim=spec.head_size,
        write_block=_write_block(spec.dtype, spec.block_size, spec.head_size),
        **common,
    )


def _only_spec(kv_cache_config: "KVCacheConfig") -> "FullAttentionSpec | MLAAttentionSpec":
    """That of the one cache group. Raises LayoutError, naming the group that we do not read.

    Only workers can tell: to the scheduler vLLM shows one layer's spec in place of a group of layers that differ
    (`generate_scheduler_kv_cache_config` in vllm/v1/core/kv_cache_utils.py).
    """
    groups = kv_cache_config.kv_cache_groups
    for index, group in enumerate(groups):
        spec = group.kv_cache_spec
        window = getattr(spec, "sliding_window", None)
        if type(spec) not in (FullAttentionSpec, MLAAttentionSpec) or window is not None:
            kind = type(spec).__name__ + (f" with a window of {window} tokens" if window is not None else "")
            which = f"{kind}, {len(group.layer_names)} layers from {group.layer_names[0]}"
            raise LayoutError(f"cache group {index} ({which}): only full attention and MLA can be handed off")
    if len(groups) != 1:
        raise LayoutError(f"{len(groups)} cache groups of full attention or MLA: exactly one can be handed off")
    return groups[0].kv_cache_spec


def _model_dir(model: str, revision: str | None) -> Path:
    """Where vLLM has the checkpoint: a directory, or the hub's cache."""
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, revision=revision, local_files_only=True))


def _rotates_in_kernel(custom_ops: list[str]) -> bool:
    """Whether vLLM uses its own rotary kernel (vllm/model_executor/custom_op.py, `CustomOp.enabled`)."""
    if "-rotary_embedding" in custom_ops:
        return False
    return "+rotary_embedding" in custom_ops or "all" in custom_ops


def _rotate(keys: Values) -> Values:
    """MLA's call of the kernel: keys are a strided slice with a head dimension put in (layers/mla.py)."""
    tokens, pair = keys.shape
    latent = torch.zeros(tokens, 3 * pair)
    latent[:, -pair:] = torch.from_numpy(keys)
    key = latent[:, -pair:].unsqueeze(1)
    angles = torch.arange(tokens, dtype=torch.float32)[:, None]
    table = torch.cat([angles.cos(), angles.sin()], 1)
    query = torch.zeros(tokens, 1, pair)
    ops.rotary_embedding(torch.arange(tokens), query, key, pair, table, False)
    rotated: Values = key[:, 0].numpy()
    return rotated


def _write_block(dtype: torch.dtype, block_size: int, head_dim: int) -> WriteBlock:
    """Write one block through the kernel that fills the cache (vllm/v1/attention/backends/cpu_attn.py)."""
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    isa = _get_attn_isa(dtype, block_size, head_dim)

    def write(keys: Values, values: Values) -> Values:
        cache = torch.zeros((2, 1, 2 * block_size, head_dim), dtype=dtype)
        key_cache, value_cache = cache.chunk(2, dim=2)
        slots = torch.arange(block_size, 2 * block_size, dtype=torch.int64)
        key, value = (torch.from_numpy(np.ascontiguousarray(x)).to(dtype)[:, None] for x in (keys, values))
        ops.cpu_attn_reshape_and_cache(key, value, key_cache, value_cache, slots, isa)
        block: Values = cache[1].flatten().float().numpy()
        return block

    return write
