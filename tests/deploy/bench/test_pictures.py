"""The bench's pictures: every figure is in them, inside the frame, and nothing is fetched."""

from xml.etree import ElementTree

from deploy.bench.simulate.picture import bars, curves

SVG = "{http://www.w3.org/2000/svg}"


def test_curves_hold_every_point_in_the_frame() -> None:
    lines = {"one": [(300.0, 300.0, "batch 1"), (250.0, 500.0, "batch 2")], "other <2>": [(100.0, 900.0, "batch 8")]}
    root = ElementTree.fromstring(curves("Title & more", "x", "y", lines))
    circles = list(root.iter(f"{SVG}circle"))
    assert len(circles) == 3 and len(list(root.iter(f"{SVG}polyline"))) == 2
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < float(one.attrib["cx"]) < width and 0 < float(one.attrib["cy"]) < height for one in circles)
    told = [one.find(f"{SVG}title").text for one in circles]  # type: ignore[union-attr]
    assert told == ["one, batch 1: 300 by 300", "one, batch 2: 250 by 500", "other <2>, batch 8: 100 by 900"]
    one, two, _ = circles
    assert float(one.attrib["cx"]) > float(two.attrib["cx"]) and float(one.attrib["cy"]) > float(two.attrib["cy"])


def test_bars_are_as_long_as_their_parts_together() -> None:
    rows = {"plan": {"memory": 100.0, "signals": 50.0}, "kernels": {"memory": 100.0, "latency": 300.0}}
    root = ElementTree.fromstring(bars("Title", "µs", rows))
    parts = [one for one in root.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]
    widths = {one.find(f"{SVG}title").text: float(one.attrib["width"]) for one in parts}  # type: ignore[union-attr]
    assert widths["kernels, latency: 300 µs"] / widths["plan, memory: 100 µs"] == 3.0
    assert widths["plan, latency: 0 µs"] == 0.0
    assert {"150 µs", "400 µs"} <= {one.text for one in root.iter(f"{SVG}text")}
