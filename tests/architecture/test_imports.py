"""Who may import whom: DESIGN section 2."""

import pytest

from tests.architecture.sources import PACKAGES, Import, files, imports, under

ENGINE = "persistent_engine"
LEARNED = ("torch", "vllm", "transformers", "numba", "llvmlite")
STEPS = tuple(f"{ENGINE}.{part}" for part in ("manifest", "compile", "check", "simulate", "runtime", "models"))

# What the modules under a prefix must not import; every prefix that matches applies.
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "speedtier": tuple(package for package in PACKAGES if package != "speedtier"),
    "tilert_connector": ("router", ENGINE, "deploy"),
    "tilert_connector.protocol": ("tilert_connector.connector", "tilert_connector.receiver", *LEARNED),
    "tilert_connector.layout": ("tilert_connector.connector", "tilert_connector.receiver", *LEARNED),
    "tilert_connector.transport": ("tilert_connector.connector", "tilert_connector.receiver", *LEARNED),
    "tilert_connector.receiver": ("tilert_connector.connector", *LEARNED),
    "router": (ENGINE, "deploy", "torch", "numba", "transformers"),
    ENGINE: ("router", "deploy", "torch", "vllm", "transformers"),
    f"{ENGINE}.plan": (*STEPS, f"{ENGINE}.server", *LEARNED),
    f"{ENGINE}.check": (f"{ENGINE}.compile", *LEARNED),
    **{step: (f"{ENGINE}.server",) for step in STEPS},
}
FORBIDDEN[f"{ENGINE}.check"] += (f"{ENGINE}.server",)

IMPORTS = [one for path in files() for one in imports(path)]


@pytest.mark.parametrize("prefix", sorted(FORBIDDEN))
def test_no_import_against_the_direction(prefix: str) -> None:
    assert [one for one in IMPORTS if under(one.importer, (prefix,)) and under(one.imported, FORBIDDEN[prefix])] == []


def test_the_router_knows_only_the_messages_and_tickets_of_the_connector() -> None:
    allowed = ("tilert_connector.protocol", "tilert_connector.ticket")
    seen = [one for one in IMPORTS if under(one.importer, ("router",))]
    assert [
        one for one in seen if under(one.imported, ("tilert_connector",)) and not under(one.imported, allowed)
    ] == []


def test_vllm_is_imported_by_the_connector_alone_or_where_a_function_asks_for_it() -> None:
    loaders = (
        "tilert_connector.connector",
        "tilert_connector.stats",
        "deploy.bench.connector.idle_connector",
    )  # vLLM itself loads them
    askers = ("router", "deploy.opponents")  # the latter run in processes of their own, to be measured against
    seen = [one for one in IMPORTS if under(one.imported, ("vllm",)) and not under(one.importer, loaders)]
    assert [one for one in seen if not (under(one.importer, askers) and one.lazy)] == []


def test_plans_need_nothing_but_msgspec_and_numpy() -> None:
    import sys

    known = (*sys.stdlib_module_names, "msgspec", "numpy", "speedtier", f"{ENGINE}.plan")
    seen = [one for one in IMPORTS if under(one.importer, (f"{ENGINE}.plan",))]
    assert seen, "the plan package is gone"
    assert [one for one in seen if not under(one.imported, known)] == []


def test_set_up_and_guard_need_the_standard_library_alone() -> None:
    import sys

    known = (*sys.stdlib_module_names, "deploy.setup", "speedtier.errors")
    lean = ("deploy.setup", "deploy.processes.guard", "speedtier.errors")
    seen = [one for one in IMPORTS if under(one.importer, lean)]
    assert [one for one in seen if not under(one.imported, known)] == []


def test_the_reader_of_imports_sees_every_form(tmp_path, mocker) -> None:  # type: ignore[no-untyped-def]
    source = tmp_path / "router" / "seen.py"
    source.parent.mkdir()
    source.write_text("import a.b\nfrom c import d\nfrom . import e\ndef f():\n    from ..g import h\n")
    mocker.patch("tests.architecture.sources.ROOT", tmp_path)
    assert set(imports(source)) == {
        Import("router.seen", "a.b", False),
        Import("router.seen", "c.d", False),
        Import("router.seen", "router.e", False),
        Import("router.seen", "g.h", True),
    }
