"""The sizes of pictures, as a browser shows them."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from reproduce.report_pictures import Size, size_of

INCHES = (3.0, 1.5)
DOTS_PER_INCH = 100
CSS_PIXELS_PER_INCH = 96


@pytest.mark.parametrize(
    ("name", "per_inch"), [("a.png", DOTS_PER_INCH), ("a.svg", CSS_PIXELS_PER_INCH)]
)
def test_a_picture_of_matplotlib_has_its_size(
    tmp_path: Path, name: str, per_inch: int
) -> None:
    file = tmp_path / name
    Figure(figsize=INCHES).savefig(file, dpi=DOTS_PER_INCH)
    width, height = INCHES
    assert size_of(file) == Size(round(width * per_inch), round(height * per_inch))


@pytest.mark.parametrize(
    "sides", ['width="30" height="20"', 'height="20px" width="30px"']
)
def test_a_drawing_in_pixels_has_its_size(tmp_path: Path, sides: str) -> None:
    file = tmp_path / "a.svg"
    file.write_text(f"<svg {sides}/>")
    assert size_of(file) == Size(30, 20)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.png", "cut"),
        ("a.png", "a text that is long enough for a header"),
        ("a.svg", "no drawing"),
        ("a.svg", '<svg viewBox="0 0 30 20"/>'),
        ("a.svg", '<svg width="100%" height="20"/>'),
    ],
)
def test_a_picture_that_names_no_size_has_none(
    tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert size_of(file) is None
