"""Traces of simulated and real runs: the schema, Perfetto's JSON, the picture of a layer."""

import json
import time
from itertools import pairwise
from xml.etree import ElementTree

import msgspec
import pytest

from persistent_engine.plan import Plan, Task
from persistent_engine.runtime import Job
from persistent_engine.simulate import FormulaCosts, Workload, program_of, run
from persistent_engine.trace import WHOLE_STEP, Trace, layer_svg, measured, perfetto, simulated
from speedtier.errors import PlanError
from tests.persistent_engine.rig import build
from tests.persistent_engine.simulate.programs import MACHINE, program

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return build("tiny-mla", workers=3, tiles_per_worker=2).plan


@pytest.fixture(scope="module")
def trace(plan: Plan) -> Trace:
    return simulated(plan, run(program_of(plan, FormulaCosts(), MACHINE, Workload(100))))


def test_a_simulated_trace_has_every_task_once_and_none_overlap(plan: Plan, trace: Trace) -> None:
    assert sorted(span.task for span in trace.spans) == list(range(len(plan.tasks)))
    for worker in range(len(trace.tracks)):
        spans = sorted((s for s in trace.spans if s.worker == worker), key=lambda span: span.task)
        assert all(a.ended_s <= b.reached_s + 1e-9 for a, b in pairwise(spans))
    assert min(span.reached_s for span in trace.spans) == pytest.approx(0.0)


def test_several_epochs_follow_each_other(plan: Plan) -> None:
    timeline = run(program_of(plan, FormulaCosts(), MACHINE, Workload(100)))
    both = simulated(plan, timeline, epochs=2)
    assert {span.epoch for span in both.spans} == {2, 3} and len(both.spans) == 2 * len(plan.tasks)
    leader = [span for span in both.spans if span.worker == 0]
    ends = {epoch: max(span.ended_s for span in leader if span.epoch == epoch) for epoch in (2, 3)}
    assert ends[3] - ends[2] == pytest.approx(timeline.steps[2] - timeline.steps[1])


def test_a_trace_survives_its_json(trace: Trace) -> None:
    assert msgspec.json.decode(msgspec.json.encode(trace), type=Trace) == trace


def test_perfetto_gets_a_slice_for_each_task_and_wait_and_a_name_for_each_worker(plan: Plan, trace: Trace) -> None:
    events = json.loads(perfetto(trace))["traceEvents"]
    tasks = [event for event in events if event.get("cat") == "task"]
    assert sorted(event["args"]["task"] for event in tasks) == list(range(len(plan.tasks)))
    waits = [event for event in events if event.get("cat") == "wait"]
    assert len(waits) == sum(span.began_s > span.reached_s for span in trace.spans) > 0
    assert all(event["dur"] >= 0 and event["ts"] >= -1e-6 for event in tasks + waits)
    threads = {event["tid"] for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    assert threads == {event["tid"] for event in tasks}
    assert perfetto(trace) == perfetto(trace)


@pytest.mark.parametrize("layer", [-1, 0, 1])
def test_the_picture_of_a_layer_holds_every_task_of_it_and_fetches_nothing(
    plan: Plan, trace: Trace, layer: int
) -> None:
    text = layer_svg(trace, layer)
    root = ElementTree.fromstring(text)
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.get("class") == "task"]
    wanted = [task for task, row in enumerate(plan.tasks) if row[Task.LAYER] == layer]
    assert sorted(int(bar.attrib["data-task"]) for bar in bars) == wanted
    assert all((bar.find(f"{SVG}title").text or "").strip() for bar in bars)  # type: ignore[union-attr]
    width = float(root.attrib["width"])
    assert all(0 <= float(bar.attrib["x"]) <= width - float(bar.attrib["width"]) for bar in bars)
    assert not {"script", "image", "use", "link"} & {element.tag.removeprefix(SVG) for element in root.iter()}
    assert "href" not in text and "url(" not in text and "@import" not in text


def test_a_layer_that_is_not_there_is_refused_with_those_that_are(trace: Trace) -> None:
    with pytest.raises(PlanError, match="layer is 99; the trace has -1 to 3"):
        layer_svg(trace, 99)


def test_a_timeline_of_another_plan_is_refused(plan: Plan) -> None:
    with pytest.raises(PlanError, match="trace the plan that was run"):
        simulated(plan, run(program([], [[]])))


async def test_a_real_run_is_whole_steps_in_the_same_schema() -> None:
    rig = build("tiny-mla", workers=1)
    async with rig.engine() as engine:
        started, ended = time.perf_counter(), []
        async for tokens in engine.decode(Job(slot=0, position=0, token=11, most=6), lambda reason: None):
            ended += [time.perf_counter()] * len(tokens)
    trace = measured(rig.plan, ended, started)
    assert [span.task for span in trace.spans] == [WHOLE_STEP] * len(ended) and len(ended) >= 1
    assert trace.spans[-1].ended_s == pytest.approx(ended[-1] - started)
    assert len(json.loads(perfetto(trace))["traceEvents"]) >= len(ended)
    with pytest.raises(PlanError, match="step 2 ends at 1"):
        measured(rig.plan, [2.0, 1.0], 0.0)
