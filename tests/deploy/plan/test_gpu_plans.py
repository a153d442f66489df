"""Plans of GLM-5.1 for eight GPUs, from the command's own compile to a simulated step."""

import msgspec
import pytest

from deploy.plan.config import CompileConfig
from deploy.plan.target import Target, compile_for, machine_of
from persistent_engine.manifest import Workload
from persistent_engine.plan import BufferKind, BufferRow, Dtype, Plan, Role
from persistent_engine.simulate import FormulaCosts, bounds_of, kernels_of, program_of, result_of, run
from speedtier.errors import ConfigError

LOAD = Workload(1500)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_for(Target("glm-5.1", "8xB200", 2048))


def test_weights_and_state_are_fp8_and_the_first_device_has_the_indexer(plan: Plan) -> None:
    assert plan.devices[:, 0].tolist() == [Role.INDEXER] + [Role.MLA] * 7
    state = plan.buffers[plan.buffers[:, BufferRow.KIND] == BufferKind.STATE]
    assert set(state[:, BufferRow.DTYPE].tolist()) == {Dtype.FP8}


def test_a_simulated_step_reads_what_the_model_has_and_beats_no_bound(plan: Plan) -> None:
    machine, costs = machine_of("8xB200"), FormulaCosts()
    program = program_of(plan, costs, machine, LOAD)
    result, bounds = result_of(run(program, 2)), bounds_of(program)
    assert result.step_s >= bounds.most_s
    assert 40e9 < result.memory_bytes < 45e9  # 42 GB of active parameters at a byte each, and little state
    kernels = result_of(run(kernels_of(plan, costs, machine, LOAD), 2))
    assert kernels.step_s > result.step_s and kernels.memory_bytes == pytest.approx(result.memory_bytes)
    assert kernels.path["launch"] > 0 and "launch" not in result.path


def test_zero_latencies_leave_what_bytes_and_lanes_take(plan: Plan) -> None:
    machine = machine_of("8xB200")
    free = dict.fromkeys(("hbm_s", "l2_s", "signal_s", "wait_s", "check_s", "hop_s", "task_s"), 0.0)
    quiet = program_of(plan, FormulaCosts(), msgspec.structs.replace(machine, **free), LOAD)
    result = result_of(run(quiet, 2))
    assert set(result.path) <= {"memory", "lanes", "cache", "arithmetic", "link", "shared"}
    assert bounds_of(quiet).memory_s <= result.step_s < run(program_of(plan, FormulaCosts(), machine, LOAD), 2).step_s


def test_what_a_cpu_plan_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch is 4; a CPU plan decodes one request"):
        compile_for(Target("tiny-mla", batch=4))
    assert CompileConfig(model="x").context == Target("x").context
