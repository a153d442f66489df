"""Configuration files: what is accepted, and what a refusal says."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from speedtier.config import from_mapping, read
from speedtier.errors import ConfigError


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Annotated[str, msgspec.Meta(description="Where it is.")]
    port: Annotated[int, msgspec.Meta(description="Its port.", ge=0, le=65535)] = 0


class Front(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Annotated[str, msgspec.Meta(description="Address.")] = "127.0.0.1"
    wait_s: Annotated[float, msgspec.Meta(description="Seconds to wait.", gt=0)] = 5.0
    decode: Annotated[tuple[Node, ...], msgspec.Meta(description="Nodes.")] = ()


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "front.toml"
    path.write_text(text)
    return path


def test_a_file_fills_the_struct_and_defaults_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path, 'wait_s = 2.5\n[[decode]]\nurl = "http://a"\nport = 9\n')
    assert read(path, Front) == Front(wait_s=2.5, decode=(Node(url="http://a", port=9),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wait = 3\n", ["wait is not a known field", "did you mean 'wait_s'"]),
        ("zebra = 3\n", ["zebra is not a known field", "known are host, wait_s, decode"]),
        ("wait_s = -1.0\n", ["wait_s = -1.0", "> 0"]),
        ('wait_s = "soon"\n', ["wait_s = 'soon'", "expected `float`"]),
        ("[[decode]]\nport = 1\n", ["decode[0].url is missing", "set it"]),
        ('[[decode]]\nurl = "a"\nprot = 1\n', ["decode[0].prot is not a known field", "did you mean 'port'"]),
        ('[[decode]]\nurl = "a"\nport = 70000\n', ["decode[0].port = 70000", "<= 65535"]),
        ("wait_s = \n", ["not valid TOML"]),
    ],
)
def test_a_refusal_names_file_field_value_and_way_out(tmp_path: Path, text: str, said: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read(path, Front)
    for part in [str(path), *said]:
        assert part in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read"):
        read(tmp_path / "absent.toml", Front)


def test_json_is_read_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "front.json"
    path.write_text('{"host": "::1"}')
    assert read(path, Front).host == "::1"
    path.write_text("[]")
    with pytest.raises(ConfigError, match="not valid JSON"):
        read(path, Front)


def test_text_becomes_a_number_only_when_asked() -> None:
    assert from_mapping({"wait_s": "3"}, Front, "flags", lax=True).wait_s == 3.0
    with pytest.raises(ConfigError):
        from_mapping({"wait_s": "3"}, Front, "file")
