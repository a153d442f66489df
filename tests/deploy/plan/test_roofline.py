"""`speedtier plan roofline`: the figures that others rely on, and what a person reads."""

from pathlib import Path

import msgspec
import pytest

from deploy.plan.roofline import RooflineConfig, roofline
from speedtier.errors import SpeedtierError


def test_the_report_has_the_figures_and_the_table_says_why_fp4_is_not_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "roofline.json"
    roofline(RooflineConfig(model="glm-5.1", device="8xH200", dtype="mxfp8", json=str(file)))
    figures = msgspec.json.decode(file.read_bytes())["figures"]
    assert figures["gb_per_token"] == pytest.approx(42, rel=0.02)
    assert figures["tokens_per_s"] == pytest.approx(914, rel=0.02)
    assert figures["tokens_per_s"] > figures["tokens_per_s_with_state"] > figures["tokens_per_s_attained"]
    assert figures["dtypes"]["nvfp4"]["gb_per_token"] == pytest.approx(22.97, rel=0.01)
    shown = capsys.readouterr().out
    assert "expert_down_add" in shown and "4.50 bits in all" in shown


@pytest.mark.parametrize("wrong", [{"model": "glm-9"}, {"model": "glm-5", "device": "9xB200"}])
def test_names_that_nobody_knows_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SpeedtierError, match="choose one of"):
        roofline(RooflineConfig(**wrong))  # type: ignore[arg-type]
