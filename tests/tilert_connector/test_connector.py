"""The connector's hooks on vLLM's own types: for what is not ours, exactly what the base class does."""

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # importing vLLM takes seconds
OURS = {"tilert_host": "127.0.0.1", "tilert_ctrl_port": 1, "tilert_handoff": "h"}


@pytest.fixture(scope="module")
def vllm() -> SimpleNamespace:
    """What the tests need of vLLM; imported here, so that the fast tests do not pay for it."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.config import KVTransferConfig
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1 import base
        from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
        from vllm.v1.request import RequestStatus

        from tilert_connector import connector
    return SimpleNamespace(
        KVTransferConfig=KVTransferConfig,
        KVConnectorFactory=KVConnectorFactory,
        base=base,
        CachedRequestData=CachedRequestData,
        SchedulerOutput=SchedulerOutput,
        RequestStatus=RequestStatus,
        connector=connector,
    )


def make(vllm: SimpleNamespace, **extra: Any) -> Any:
    config = vllm.KVTransferConfig(
        kv_connector="TileRTConnector",
        kv_connector_module_path="tilert_connector.connector",
        kv_role="kv_producer",
        kv_connector_extra_config=extra,
    )
    role = vllm.base.KVConnectorRole.SCHEDULER
    made = vllm.KVConnectorFactory.get_connector_class(config)
    return made(SimpleNamespace(kv_transfer_config=config), role, None)


def request(name: str, status: Any, params: Any, **changes: Any) -> SimpleNamespace:
    plain: dict[str, Any] = {"lora_request": None, "resumable": False, "num_prompt_tokens": 20, "cache_salt": None}
    plain |= {"mm_features": [], "prompt_embeds": None, "prompt_token_ids": list(range(20))}
    fields = {"request_id": name, "kv_transfer_params": params, "status": status, **plain, **changes}
    return SimpleNamespace(**fields)


@pytest.mark.contract("H9")
def test_a_claim_without_a_good_ticket_leaves_no_trace_and_is_told_to_the_caller(vllm: Any, tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    connector = make(vllm, ticket_key_file=str(key))
    asked = request("a", vllm.RequestStatus.FINISHED_LENGTH_CAPPED, OURS)
    connector.on_new_request(asked)
    step = connector.build_connector_meta(output(vllm, {"a": (0, 20)})).step
    assert not step
    delayed, told = connector.request_finished(asked, [4, 5])
    assert not delayed and "there is none" in told["tilert_refused"]
    assert connector.request_finished(asked, [4, 5]) == (False, None)


def output(vllm: SimpleNamespace, new: dict[str, tuple[int, int]], **changes: Any) -> Any:
    """A step that schedules these requests for the first time: name -> (computed, scheduled)."""
    fields: dict[str, Any] = {
        "scheduled_new_reqs": [
            SimpleNamespace(req_id=name, num_computed_tokens=computed, block_ids=([4, 5],))
            for name, (computed, _) in new.items()
        ],
        "scheduled_cached_reqs": vllm.CachedRequestData.make_empty(),
        "num_scheduled_tokens": {name: count for name, (_, count) in new.items()},
        "total_num_scheduled_tokens": sum(count for _, count in new.values()),
        "scheduled_spec_decode_tokens": {},
        "scheduled_encoder_inputs": {},
        "num_common_prefix_blocks": [],
        "finished_req_ids": set(),
        "free_encoder_mm_hashes": [],
        "preempted_req_ids": set(),
        **changes,
    }
    known = vllm.SchedulerOutput.__dataclass_fields__
    return vllm.SchedulerOutput(**{name: value for name, value in fields.items() if name in known})


@pytest.mark.contract("H1")
@pytest.mark.parametrize("params", [None, {}, {"do_remote_decode": True}, {"tilert_host": ""}])
def test_what_is_not_ours_gets_the_base_defaults(vllm: SimpleNamespace, params: Any) -> None:
    ours, status = make(vllm), vllm.RequestStatus.FINISHED_LENGTH_CAPPED
    theirs = request("r", status, params)
    ours.on_new_request(theirs)
    assert ours.get_num_new_matched_tokens(theirs, 0) == (0, False)
    ours.update_state_after_alloc(theirs, None, 0)
    metadata = ours.build_connector_meta(output(vllm, {"r": (0, 20)}))
    assert not metadata.step and len(pickle.dumps(metadata)) < 300
    assert ours.request_finished(theirs, [4, 5]) == (False, None)
    assert ours.request_finished_all_groups(theirs, ([4, 5],)) == (False, None)
    assert ours.get_finished({"r"}) == (None, None)
    assert ours.has_pending_push_work() is False


@pytest.mark.contract("H1")
def test_every_hook_that_we_do_not_need_is_the_base_class(vllm: SimpleNamespace) -> None:
    mine = set(vars(vllm.connector.TileRTConnector)) - {"__module__", "__doc__", "__init__"}
    base = vllm.base.KVConnectorBase_V1
    required = {name for name in base.__abstractmethods__}
    assert {name for name in mine if hasattr(base, name)} - required == {
        "__abstractmethods__",
        "requires_kv_delivery",
        "on_new_request",
        "request_finished",
        "update_connector_output",
        "has_pending_push_work",
        "register_kv_caches",
        "handle_preemptions",
        "get_finished",
        "get_kv_connector_stats",
        "build_kv_connector_stats",
        "build_prom_metrics",
        "shutdown",
    } | ({"_abc_impl"} & mine)
    assert vllm.base.supports_hma(vllm.connector.TileRTConnector)


@pytest.mark.contract("H1")
def test_preempted_general_requests_keep_what_is_being_computed(vllm: SimpleNamespace) -> None:
    """As in a vLLM without a connector, and not as the base class answers for producers."""
    assert make(vllm).requires_kv_delivery is False


@pytest.mark.contract("H1", "H6")
def test_ours_is_delayed_until_a_worker_reports_it(vllm: SimpleNamespace) -> None:
    ours = make(vllm)
    mine = request("r", vllm.RequestStatus.FINISHED_LENGTH_CAPPED, OURS)
    ours.on_new_request(mine)
    step = pickle.loads(pickle.dumps(ours.build_connector_meta(output(vllm, {"r": (16, 4)})))).step
    assert [one.request for one in step.openings] == ["r"]
    assert [(chunk.blocks, chunk.available) for chunk in step.chunks] == [((4, 5), 20)]
    assert ours.request_finished_all_groups(mine, ([4, 5],)) == (True, None)
    assert ours.has_pending_push_work()
    finished = ours.build_connector_meta(output(vllm, {})).step.finished
    assert [(one.request, one.completed, one.delayed) for one in finished] == [("r", True, True)]
    ours.update_connector_output(SimpleNamespace(finished_sending={"r"}))
    assert not ours.has_pending_push_work()


@pytest.mark.contract("H2")
def test_preemption_and_resumption_reach_the_workers(vllm: SimpleNamespace) -> None:
    ours = make(vllm)
    ours.on_new_request(request("r", None, OURS))
    ours.build_connector_meta(output(vllm, {"r": (0, 16)}))
    lost = ours.build_connector_meta(output(vllm, {}, preempted_req_ids={"r"})).step
    assert lost.preempted == ("r",)
    again = vllm.CachedRequestData.make_empty()
    again.req_ids, again.resumed_req_ids = ["r"], {"r"}
    again.new_block_ids, again.num_computed_tokens = [([7, 8],)], [0]
    resumed = output(vllm, {}, scheduled_cached_reqs=again, num_scheduled_tokens={"r": 20})
    (chunk,) = ours.build_connector_meta(resumed).step.chunks
    assert (chunk.blocks, chunk.available, chunk.restart) == ((7, 8), 20, True)


@pytest.mark.contract("H5")
@pytest.mark.parametrize(
    ("changes", "word"), [({"lora_request": object()}, "LoRA"), ({"resumable": True}, "streaming session")]
)
def test_a_state_that_the_decode_node_could_not_continue_is_refused(
    vllm: SimpleNamespace, changes: dict[str, Any], word: str
) -> None:
    ours = make(vllm)
    mine = request("r", vllm.RequestStatus.FINISHED_LENGTH_CAPPED, OURS, **changes)
    ours.on_new_request(mine)
    (opening,) = ours.build_connector_meta(output(vllm, {"r": (0, 20)})).step.openings
    assert word in opening.refusal
    assert ours.request_finished(mine, [4, 5]) == (False, None)


@pytest.mark.contract("H6")
@pytest.mark.parametrize("end", ["FINISHED_ABORTED", "FINISHED_ERROR", "FINISHED_IGNORED"])
def test_an_abort_is_no_completion(vllm: SimpleNamespace, end: str) -> None:
    ours = make(vllm)
    mine = request("r", getattr(vllm.RequestStatus, end), OURS)
    ours.on_new_request(mine)
    ours.build_connector_meta(output(vllm, {"r": (0, 20)}))
    assert ours.request_finished(mine, [4, 5]) == (True, None)
    assert [one.completed for one in ours.build_connector_meta(output(vllm, {})).step.finished] == [False]


def test_a_claim_that_cannot_be_read_is_prefilled_as_any_other(
    vllm: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    ours = make(vllm)
    mine = request("r", vllm.RequestStatus.FINISHED_LENGTH_CAPPED, {**OURS, "tilert_ctrl_port": "x"})
    ours.on_new_request(mine)
    assert not ours.build_connector_meta(output(vllm, {"r": (0, 20)})).step
    delayed, told = ours.request_finished(mine, [4, 5])
    assert not delayed and "tilert_ctrl_port" in told["tilert_refused"]
    assert "tilert_ctrl_port" in caplog.text


def test_an_unknown_setting_stops_the_start(vllm: SimpleNamespace) -> None:
    from speedtier.errors import ConfigError

    with pytest.raises(ConfigError, match="hold_seconds"):
        make(vllm, hold_seconds=3)


@pytest.mark.contract("H7")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("block_size", "head_dim"), [(32, 64), (128, 64), (128, 128), (512, 32), (64, 80)])
def test_the_kernels_of_this_machine_are_as_the_planes_say(
    vllm: SimpleNamespace, dtype: str, block_size: int, head_dim: int
) -> None:
    import torch

    from tilert_connector.layout.probe import check_gqa_block

    write = vllm.connector._write_block(getattr(torch, dtype), block_size, head_dim)
    check_gqa_block(write, block_size, head_dim, "this machine")
