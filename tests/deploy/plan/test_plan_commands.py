"""`speedtier plan ...` as a user types it."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from deploy.plan.diff import differences
from deploy.plan.files import read
from persistent_engine.check import load_certificate, verify
from persistent_engine.plan import Task, Wait, encode


def plan(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "deploy.cli", "plan", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={"COLUMNS": "160", "PATH": ""})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("plans") / "tiny.plan")
    done = plan("compile", "--model", "tiny-mla", "--context", "512", "--workers", "2", "--out", path)
    assert done.returncode == 0, done.stderr
    assert "tasks for 2 workers" in done.stdout and f"speedtier plan check {path}" in done.stdout
    return path


def test_the_same_compile_gives_the_same_bytes(file: str, tmp_path: Path) -> None:
    again = tmp_path / "again.plan"
    plan("compile", "--model", "tiny-mla", "--context", "512", "--workers", "2", "--out", str(again))
    assert again.read_bytes() == Path(file).read_bytes()


def test_show_has_every_worker_and_every_task_of_a_layer(file: str) -> None:
    done = plan("show", file, "--layer", "1")
    assert done.returncode == 0, done.stderr
    assert "DeepseekV3ForCausalLM for cpu" in done.stdout and "content hash" in done.stdout
    rows = [line.split("│")[2].strip() for line in done.stdout.split("layer 1")[1].splitlines() if line.count("│") > 8]
    wanted = [task for task, row in enumerate(read(file).tasks) if row[Task.LAYER] == 1]
    assert sorted(int(cell) for cell in rows if cell) == wanted


def test_a_layer_that_is_not_there_is_named_with_those_that_are(file: str) -> None:
    done = plan("show", file, "--layer", "40")
    assert (
        done.returncode == 1 and done.stderr == "speedtier: layer is 40; the plan has -1 to 3 (-1: before the first)\n"
    )


def test_diff_says_what_differs_and_nothing_of_equal_plans(file: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.plan")
    plan("compile", "--model", "tiny-mla", "--context", "512", "--workers", "3", "--out", other)
    same, done = plan("diff", file, file), plan("diff", file, other)
    assert same.returncode == 0 and same.stdout.startswith("the same plan")
    assert (
        done.returncode == 0 and "table: workers" in done.stdout and "2 rows" in done.stdout and "3 rows" in done.stdout
    )
    found = {what for what, _, _ in differences(read(file), read(other))}
    assert {"table: workers", "table: tasks", "layer 1"} <= found
    assert differences(read(file), read(file)) == []


def test_simulate_writes_its_figures(file: str, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    done = plan("simulate", file, "--context", "100", "--json", str(out))
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_bytes())
    figures = report["figures"]
    assert report["machine"] == "cpu" and f"{figures['tokens_per_s_user']:.1f} tokens/s" in done.stdout.replace(
        "\n", " "
    )
    assert figures["tokens_per_s_user"] == pytest.approx(1 / figures["step_s"])
    assert figures["step_s"] >= max(figures["bounds"].values())
    assert sum(figures["path"].values()) == pytest.approx(figures["step_s"], rel=1e-6)


def test_a_model_is_compiled_where_no_file_is_given(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    done = plan("trace", "--model", "tiny-gqa", "--context", "64", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert any(event.get("cat") == "task" for event in json.loads(out.read_bytes())["traceEvents"])


def test_a_timeline_is_a_picture(file: str, tmp_path: Path) -> None:
    out = tmp_path / "layer.svg"
    assert plan("timeline", file, "--context", "64", "--layer", "1", "--out", str(out)).returncode == 0
    assert ElementTree.fromstring(out.read_text()).tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("show", "absent.plan"), 1, "'absent.plan' cannot be read"),
        (("show",), 2, "plan"),
        (("simulate", "--context", "9"), 2, "give a plan file or --model"),
        (("simulate", "FILE", "--model", "tiny-mla"), 2, "one of the two"),
        (("simulate", "FILE", "--context", "9000"), 1, "context is 9001; this plan is for 1 to 512"),
        (("simulate", "FILE", "--draft-depth", "3"), 2, "draft_depth is 3; the plan is for 0, give --draft-depth 0"),
        (("simulate", "FILE", "--acceptance", "2"), 2, "acceptance is 2; a step of draft depth 0 gives 1"),
        (("simulate", "FILE", "--device", "abacus"), 1, "device is 'abacus'; choose one of"),
        (("compile", "--model", "tiny-mla", "--out", "x", "--policy", "best"), 1, "policy is 'best'; choose one of"),
        (("compile", "--model", "absent-dir", "--out", "x"), 2, "model is 'absent-dir'; choose one of"),
        (("compile", "--model", "tiny-mla", "--out", "/absent/x.plan"), 1, "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_line(file: str, arguments, status, says) -> None:  # type: ignore[no-untyped-def]
    done = plan(*(file if argument == "FILE" else argument for argument in arguments))
    assert done.returncode == status and says in done.stderr and done.stderr.count("\n") == 1


def test_a_damaged_file_is_refused(file: str, tmp_path: Path) -> None:
    data = bytearray(Path(file).read_bytes())
    data[-20] ^= 1
    broken = tmp_path / "broken.plan"
    broken.write_bytes(data)
    done = plan("show", str(broken))
    assert done.returncode == 1 and "damaged" in done.stderr and done.stderr.startswith(f"speedtier: {broken}: ")


def test_manifests_that_differ_are_told_by_field(file: str) -> None:
    one = read(file)
    changed = msgspec.structs.replace(
        one.manifest, device="other", bucket=(1, 9), names=(*one.manifest.names, "extra"), limits={"capacity": 9}
    )
    other = type(one)(changed, *(getattr(one, name) for name in one.__dataclass_fields__ if name != "manifest"))
    told = {what: (first, second) for what, first, second in differences(one, other)}
    assert told["manifest: device"] == ("cpu", "other") and told["manifest: bucket"] == ("(1, 512)", "(1, 9)")
    assert told["manifest: names"][1] == "extra" and "capacity" in told["manifest: limits"][1]


def test_check_certifies_a_plan_that_keeps_the_rules(file: str, tmp_path: Path) -> None:
    copy, elsewhere = tmp_path / "copy.plan", tmp_path / "elsewhere"
    copy.write_bytes(Path(file).read_bytes())
    done = plan("check", str(copy))
    assert done.returncode == 0, done.stderr
    verify(read(str(copy)), load_certificate((tmp_path / "copy.plan.certificate").read_bytes()))
    assert plan("check", str(copy), "--certificate", str(elsewhere)).returncode == 0
    assert elsewhere.read_bytes() == (tmp_path / "copy.plan.certificate").read_bytes()


def test_check_names_the_rule_and_the_witness_and_leaves_no_certificate(file: str, tmp_path: Path) -> None:
    whole = read(file)
    waits = whole.waits.copy()
    waits[0, Wait.COUNT] += 1
    broken = tmp_path / "broken.plan"
    broken.write_bytes(encode(dataclasses.replace(whole, waits=waits)))
    old = tmp_path / "broken.plan.certificate"
    old.write_bytes(b"of an earlier plan")
    done = plan("check", str(broken))
    assert done.returncode == 1 and not old.exists()
    assert "P4: " in done.stderr and "[" in done.stderr and f"{broken} is refused" in done.stderr


def test_what_a_pass_made_is_printed_in_place_of_a_file(tmp_path: Path) -> None:
    out = tmp_path / "none.plan"
    done = plan("compile", "--model", "tiny-mla", "--context", "512", "--dump", "place", "--out", str(out))
    assert done.returncode == 0 and "embedding: embed on 0" in done.stdout and not out.exists()
    done = plan("compile", "--model", "tiny-mla", "--dump", "guess")
    assert done.returncode == 2 and "dump is 'guess'; choose one of lower, place" in done.stderr
