"""Command line options made from a configuration struct."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from speedtier.config import command
from speedtier.errors import ConfigError


def described(text: str, **bounds: float) -> msgspec.Meta:
    return msgspec.Meta(description=text, **bounds)


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Annotated[str, described("Where it is.")]
    port: Annotated[int, described("Its port.", ge=0)] = 0


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: Annotated[int, described("Requests that may wait.", ge=0)] = 16


class Front(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: Annotated[str, described("Checkpoint directory.")]
    dtype: Annotated[Literal["float32", "bfloat16"], described("Weights.")] = "float32"
    seed: Annotated[int | None, described("Seed of sampling.")] = None
    live: Annotated[bool, described("Show progress.")] = True
    native: Annotated[list[str], described("Servers.")] = msgspec.field(default_factory=list)
    decode: Annotated[tuple[Node, ...], described("Nodes.")] = ()
    labels: Annotated[dict[str, str], described("Labels.")] = msgspec.field(default_factory=dict)
    extra: Annotated[dict[str, Any], described("More.")] = msgspec.field(default_factory=dict)
    limits: Annotated[Limits, described("Bounds.")] = Limits()


def call(*arguments: str) -> Front:
    got: list[Front] = []
    app = typer.Typer()
    app.command()(command(Front, got.append, help_="Run the front."))
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return got[0]


def test_every_kind_of_field_has_an_option() -> None:
    got = call(
        *("--model", "m", "--dtype", "bfloat16", "--seed", "7", "--no-live", "--native", "http://a"),
        *(
            "--native",
            "http://b",
            "--decode",
            "url=http://c,port=9",
            "--labels",
            "zone=1",
            "--limits-queue",
            "3",
        ),
        *("--extra", "slots=2", "--extra", "name=a b", "--extra", "far.drain_s=1.5", "--extra", 'far.host="h"'),
    )
    assert got == Front(
        model="m",
        dtype="bfloat16",
        seed=7,
        live=False,
        native=["http://a", "http://b"],
        decode=(Node(url="http://c", port=9),),
        labels={"zone": "1"},
        extra={"slots": 2, "name": "a b", "far": {"drain_s": 1.5, "host": "h"}},
        limits=Limits(queue=3),
    )


def test_options_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = tmp_path / "front.toml"
    path.write_text('model = "filed"\nseed = 1\n[limits]\nqueue = 2\n')
    got = call("--config", str(path), "--seed", "5")
    assert got == Front(model="filed", seed=5, limits=Limits(queue=2))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "model is missing"),
        (["--model", "m", "--dtype", "int3"], "dtype = 'int3': take one of float32, bfloat16"),
        (["--model", "m", "--limits-queue", "-1"], "limits.queue = -1"),
        (["--model", "m", "--decode", "http://c"], "--decode 'http://c': write it as name=value"),
        (["--model", "m", "--decode", "url=a,prot=1"], "decode[0].prot is not a known field"),
    ],
)
def test_a_refusal_names_the_field(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        call(*arguments)


def test_help_shows_descriptions_and_defaults() -> None:
    app = typer.Typer()
    app.command()(command(Front, lambda _: None, help_="Run the front."))
    text = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    for part in (
        "Run the front.",
        "Checkpoint directory. (required)",
        "(default 16)",
        "Names: url, port.",
        "One of float32,",
    ):
        assert part in text


class Compared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    first: Annotated[str, msgspec.Meta(description="One file.", extra={"argument": True})]
    second: Annotated[str, msgspec.Meta(description="The other.", extra={"argument": True})] = "none"
    layer: Annotated[int, described("Layer.")] = 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a", "b", "--layer", "2"], Compared(first="a", second="b", layer=2)),
        (["--layer", "2", "a"], Compared(first="a", layer=2)),
    ],
)
def test_a_field_may_be_given_by_its_place(arguments: list[str], expected: Compared) -> None:
    seen: list[Compared] = []
    app = typer.Typer()
    app.command()(command(Compared, seen.append, help_="Compare."))
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert seen == [expected]


def test_a_place_that_is_left_out_is_named() -> None:
    app = typer.Typer()
    app.command()(command(Compared, lambda one: None, help_="Compare."))
    failed = CliRunner().invoke(app, [])
    assert isinstance(failed.exception, ConfigError) and "first" in str(failed.exception)
