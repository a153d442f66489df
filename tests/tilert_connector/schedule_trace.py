"""A program: vLLM in one process on a fixed general load; writes what it scheduled, step by step, and answered.

In one process all requests are there before the first step, so that the same load is scheduled the same way each
time: runs with and without the connector may be compared step by step. The cache is small, requests are preempted.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def load(vocabulary: int) -> list[list[int]]:
    """Mixed lengths; every third prompt begins as another one does."""
    from tests.tilert_connector.live import random_prompt

    prompts = [random_prompt(tokens, seed=tokens) for tokens in (3, 17, 130, 260, 400, 33, 129, 300)]
    shared = random_prompt(256, seed=1)
    return [*prompts, *([*shared, *prompt[:40]] for prompt in prompts[:4])]


def settings(model: Path, cache_mib: int, connectors: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments of `vllm.LLM`."""
    more: dict[str, Any] = {"kv_transfer_config": connectors} if connectors else {}
    if "kv_lora_rank" in (model / "config.json").read_text():
        more["compilation_config"] = {"custom_ops": ["all", "-rotary_embedding"]}
    return {
        "model": str(model),
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 512,
        "max_num_batched_tokens": 512 if "compilation_config" in more else 128,
        "max_num_seqs": 8,
        "block_size": 16 if "compilation_config" in more else 32,
        "kv_cache_memory_bytes": cache_mib << 20,
        "enable_prefix_caching": "compilation_config" not in more,
        "disable_log_stats": False,
        "seed": 0,
        **more,
    }


def step(output: Any) -> list[Any]:
    """Everything of one SchedulerOutput that decides what is computed where. Ids end in random characters."""

    def plain(names: Any) -> list[str]:
        return [name.partition("-")[0] for name in names]

    cached, counts = output.scheduled_cached_reqs, output.num_scheduled_tokens
    return [
        sorted(zip(plain(counts), counts.values(), strict=True)),
        [[*plain([new.req_id]), new.num_computed_tokens, new.block_ids] for new in output.scheduled_new_reqs],
        [
            plain(cached.req_ids),
            cached.new_block_ids,
            cached.num_computed_tokens,
            sorted(plain(cached.resumed_req_ids)),
        ],
        sorted(plain(output.preempted_req_ids or ())),
        sorted(plain(output.finished_req_ids)),
    ]


def main(
    model: Path,
    out: Path,
    cache_mib: int,
    connectors: dict[str, Any] | None = None,
    marked: dict[str, Any] | None = None,
) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(**settings(model, cache_mib, connectors))
    engine: Any = llm.llm_engine
    scheduler = engine.engine_core.engine_core.scheduler
    steps: list[list[Any]] = []
    schedule = scheduler.schedule

    def recorded(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        steps.append(step(output))
        return output

    scheduler.schedule = recorded
    prompts: Any = [{"prompt_token_ids": prompt} for prompt in load(1000)]
    greedy = SamplingParams(temperature=0, max_tokens=80, ignore_eos=True)
    answers = [list(one.outputs[0].token_ids) for _ in range(2) for one in llm.generate(prompts, greedy)]
    report: dict[str, Any] = {
        "blocks": engine.vllm_config.cache_config.num_gpu_blocks,
        "groups": [type(group.kv_cache_spec).__name__ for group in scheduler.kv_cache_config.kv_cache_groups],
        "steps": list(steps),
        "answers": answers,
    }
    if marked is not None:
        one = SamplingParams(temperature=0, max_tokens=1, extra_args={"kv_transfer_params": marked})
        report["marked"] = list(llm.generate(prompts[3:4], one)[0].outputs[0].token_ids)
        while scheduler.has_requests():
            engine.step()
        report["free"] = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        report["again"] = [list(one.outputs[0].token_ids) for one in llm.generate(prompts, greedy)]
    out.write_text(json.dumps(report))


if __name__ == "__main__":
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    main(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))
