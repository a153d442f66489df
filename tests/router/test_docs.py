"""The operator's page says what the router takes, and names metrics that it has."""

import re
import tomllib
from pathlib import Path

from prometheus_client import parser

from router import RouterConfig
from router.admin import AdminKey
from router.keys import Keys
from router.traffic import Classes
from speedtier.config import from_mapping
from tests.router.stack import Open

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "router.md").read_text()


def test_the_settings_are_taken(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    config = from_mapping(tomllib.loads(text.replace('"…"', f'"{"0" * 64}"')), RouterConfig, "docs/router.md")
    assert Classes(config).names == ["agents", "bulk"] and Keys(config).wanted
    file = tmp_path / "key"
    file.write_text("a-key-of-some-length")
    assert AdminKey(str(file)) and config.admin_key_file


async def test_the_metrics_are_there(open_stack: Open) -> None:
    stack = await open_stack()
    await stack.whole(max_tokens=4)
    async with stack.session.get(stack.url + "/metrics") as reply:
        families = {each.name for each in parser.text_string_to_metric_families(await reply.text())}
    (told,) = re.findall(r"- \*\*`/metrics`\*\*(.*?)\n- \*\*", PAGE, re.DOTALL)
    names = {name.removesuffix("_total") for name in re.findall(r"`(?:speedtier_router)?(_[a-z_]+)`", told)}
    ours = [each for each in families if each.startswith("speedtier_router") and not each.endswith("_created")]
    shown = {each.removeprefix("speedtier_router") for each in ours}
    # Open requests are shown while there are some.
    assert names - shown <= {"_open_requests"} and shown <= names, (names - shown, shown - names)
