"""Device sheets: complete, sourced, consistent with what the data sheets say together."""

import pytest

from persistent_engine.devices import DEVICES, device
from persistent_engine.plan import Dtype
from speedtier.errors import PlanError


@pytest.mark.parametrize("name", DEVICES)
def test_every_figure_is_positive_and_has_a_source(name: str) -> None:
    sheet = device(name)
    assert sheet.name == name
    for figure, (value, source) in sheet.sources().items():
        assert value > 0 or (value == 0 and name == "cpu"), figure
        assert len(source) > 3, figure
    assert set(sheet.flops) == {dtype.name for dtype in Dtype}
    assert sheet.figures.l2_s.value < sheet.figures.hbm_s.value
    assert 0.5 < sheet.figures.hbm_calibration.value <= 1


def test_machines_add_up_to_their_data_sheets() -> None:
    assert device("8xB200").datasheet_bytes_per_s == 64e12
    assert device("8xH200").datasheet_bytes_per_s == 38.4e12
    assert device("GB300-NVL72").datasheet_bytes_per_s == 576e12
    assert device("8xH200").attained_bytes_per_s < 38.4e12
    assert device("8xB200").flops_per_s(Dtype.FP8) == 36e15


def test_an_unknown_machine_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(PlanError, match="8xB200"):
        device("8xZ9")


def test_measured_selection_grows_with_the_scores_and_has_a_source() -> None:
    selection = device("8xB200").selection
    assert selection is not None and len(selection.scores) == len(selection.seconds) and len(selection.source) > 20
    assert list(selection.scores) == sorted(set(selection.scores))
    assert min(selection.seconds) == selection.seconds[0] > 0
