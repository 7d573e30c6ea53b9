"""Formulas in many written forms: hard cases, and forms that are equal by construction."""

from dataclasses import dataclass

import pytest
from data_files import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.written_forms import KINDS, written
from coevolve.text.verify import units, valid, verify


@dataclass(frozen=True)
class Formula:
    """A gold formula and an answer to it."""

    kind: str
    gold: str
    answer: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.gold} | {self.answer}"


CORRECT = []
WRONG = []
for kind, rows in tables("formulas").items():
    for row in rows:
        CORRECT += [Formula(kind, row["gold"], text) for text in row.get("correct", ())]
        WRONG += [Formula(kind, row["gold"], text) for text in row.get("wrong", ())]


@pytest.mark.parametrize("formula", CORRECT, ids=str)
def test_the_same_value_in_another_form_is_correct(formula: Formula) -> None:
    assert verify("math", formula.answer, formula.gold).verdict == "pass"


@pytest.mark.parametrize("formula", WRONG, ids=str)
def test_another_value_is_wrong(formula: Formula) -> None:
    assert verify("math", formula.answer, formula.gold).verdict == "wrong"


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(seed=st.integers(0, 10**6))
def test_forms_are_judged_as_they_were_made(kind: str, seed: int) -> None:
    for form in written(kind, seed):
        verdict = verify("math", form.answer, form.gold)
        assert verdict.correct is form.is_correct, form


@pytest.mark.parametrize("answer", ["2+3", r"\sqrt{25}", "7"])
@pytest.mark.parametrize("gold", [r"x \diamond 5", "5'", r"\undefined{5}"])
def test_an_unreadable_gold_is_unscored_whatever_the_answer(
    gold: str, answer: str
) -> None:
    assert not valid("math", gold)
    assert verify("math", answer, gold).correct is None


def test_an_unreadable_gold_still_accepts_its_own_text() -> None:
    assert verify("math", r"x\diamond 5", r"x \diamond 5").correct is True


class TestUnits:
    @pytest.mark.parametrize(
        ("text", "same_text"),
        [
            ("1 km", "1000 m"),
            ("1 kWh", "3600 kJ"),
            ("1 N", "1 kg m/s^2"),
            ("36 km/h", "10 m/s"),
            ("1 L", "1000 cm^3"),
            ("2 ft 6 in", "30 inches"),
            ("1 week", "7 days"),
            ("1 V", "1 J/C"),
        ],
    )
    def test_units_of_one_dimension_are_converted(
        self, text: str, same_text: str
    ) -> None:
        quantity = units.quantity(text)
        same_quantity = units.quantity(same_text)
        assert quantity is not None
        assert same_quantity is not None
        assert units.same(quantity, same_quantity)

    def test_every_unit_of_the_table_can_be_read_behind_a_number(self) -> None:
        for name, unit in units.table().items():
            quantity = units.quantity(f"5 {name}")
            assert quantity is not None, name
            assert quantity.unit == unit, name

    @given(st.fractions(), st.sampled_from(sorted(units.table())))
    def test_a_number_without_its_unit_is_the_same(
        self, value: object, name: str
    ) -> None:
        bare = units.quantity(str(value))
        with_unit = units.quantity(f"{value} {name}")
        if bare is None or with_unit is None:
            return
        if with_unit.unit is not None and with_unit.unit.is_percent:
            return  # 1/2 is 50 %
        assert units.same(bare, with_unit)
