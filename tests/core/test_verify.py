"""Verifiers: correct and wrong answers of each kind, hostile text, and usable gold answers."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from data_files import tables

from benchmarks import attacks
from codesandbox.trusted import Answer
from coevolve.text.verify import (
    KINDS,
    Verdict,
    exact,
    numbers,
    valid,
    verify,
    verify_many,
)
from coevolve.text.verify import math as math_verifier


@dataclass(frozen=True)
class Judged:
    """A gold answer of one kind of verifier, with answers that are correct and wrong."""

    kind: str
    gold: str | list[str]
    correct: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.gold}"[:24]


MANY_BOXES = "".join(rf"\boxed{{42.{0:0{n}}}}" for n in range(1, 10))
JUDGED = [Judged(**row) for row in tables("answers")["judged"]]
JUDGED += [
    Judged("math", "42", wrong=(MANY_BOXES,)),
    Judged("choice", "B", wrong=("B" * 10_000,)),
    Judged("exact", "x" * 5000, wrong=("x" * 5000,)),
]


@pytest.mark.parametrize("judged", JUDGED, ids=str)
class TestAnswers:
    def test_correct_answers_pass(self, judged: Judged) -> None:
        for answer in judged.correct:
            verdict = verify(judged.kind, answer, judged.gold)
            assert verdict.correct is True, answer

    def test_wrong_answers_do_not_pass(self, judged: Judged) -> None:
        for answer in judged.wrong:
            verdict = verify(judged.kind, answer, judged.gold)
            assert verdict.correct is False, answer


class TestTolerance:
    def test_it_is_a_fraction_of_the_gold_number(self) -> None:
        assert verify("float", "104", "100", tolerance=0.05).correct is True
        assert verify("float", "106", "100", tolerance=0.05).correct is False

    def test_a_gold_number_in_words_leaves_the_answer_unscored(self) -> None:
        assert verify("float", "3", "many").correct is None


FILE_OF_FORMULA = Path("/tmp/pwned_formula")
HUGE_NUMBERS = [
    "(5^(5^(5^(5^5))-4)-5)/16",
    "9^{9^9}",
    "(10^{10})!",
    "42=9^{9^9}",
    r"(1+\sqrt{2})^{100000}",
    r"\int_{-\infty}^{\infty} e^{-x^{x}} dx",
]
LONG_OR_DEEP = [
    "x+" * 400,
    "(" * 25 + "1" + ")" * 25,
    "\\boxed{" * 20_000,
    " " * 200_000,
    "-" * 400 + "1",
]
BOMBS = [
    *HUGE_NUMBERS,
    *LONG_OR_DEEP,
    "\ud800",
    f"__import__('os').system('touch {FILE_OF_FORMULA}')",
]


class TestHostileText:
    @pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: repr(bomb[:24]))
    def test_a_hostile_formula_is_wrong_and_the_next_one_is_judged(
        self, bomb: str
    ) -> None:
        verdict = verify("math", bomb, "42")
        assert verdict.verdict in ("wrong", "timeout", "memory", "error"), verdict
        assert verify("math", "2x", "x+x").correct is True
        assert not FILE_OF_FORMULA.exists()

    def test_no_attack_earns_anything(self, landlock: None) -> None:
        verifiers = [*KINDS, "tests", "oracle"]
        measured = attacks.measured(verifiers)
        assert not measured["payload_ran"]
        rewards = {}
        for row in measured["rows"]:
            for verifier in verifiers:
                rewards[row["attack"], verifier] = row[verifier]["earned"]
        assert len(rewards) == 60
        for verifier in verifiers:
            assert rewards.pop((attacks.CONTROL, verifier)) == 1.0
        successful = {attack for attack, reward in rewards.items() if reward}
        assert successful == set()


class TestFormulas:
    @pytest.fixture
    def without_algebra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Fail the test if a formula is compared by computer algebra."""

        def refuse() -> None:
            pytest.fail("a formula was compared")

        monkeypatch.setattr(math_verifier, "_guarded_equal", refuse)

    @pytest.mark.usefixtures("without_algebra")
    @pytest.mark.parametrize(
        ("formula", "detail"),
        [
            ("x+" * 257, "over 512 characters"),
            ("7" * 61, "over 60 digits in a row"),
            ("(" * 25 + ")" * 25, "nested over 24 deep"),
        ],
    )
    def test_an_oversized_formula_is_refused_without_a_process(
        self, formula: str, detail: str
    ) -> None:
        assert verify("math", formula, "42").detail == detail

    @pytest.mark.usefixtures("without_algebra")
    def test_plain_numbers_are_compared_without_a_process(self) -> None:
        assert verify("math", "41", "42").verdict == "wrong"

    @pytest.mark.parametrize(
        "gold", ["", "x+" * 300, "9" * 61, r"\\undefined{3}", "3 + \\\\", "x+?"]
    )
    def test_an_unreadable_gold_formula_leaves_the_answer_unscored(
        self, gold: str
    ) -> None:
        assert verify("math", "42", gold).correct is None

    @pytest.mark.parametrize(
        ("why", "verdict"),
        [("lost", "unscored"), ("timeout", "timeout"), ("memory", "memory")],
    )
    def test_each_fault_of_the_machine_has_its_verdict(
        self, monkeypatch: pytest.MonkeyPatch, why: str, verdict: str
    ) -> None:
        def guarded_equal(gold: str, answer: str) -> Answer:
            return Answer(why=why) if answer else Answer(True)

        monkeypatch.setattr(math_verifier, "_guarded_equal", lambda: guarded_equal)
        assert verify("math", "x+1", "1+x").verdict == verdict


class TestGoldAnswers:
    @pytest.mark.parametrize("formula", ["x^2", "-7", "prime", r"\boxed{3}"])
    def test_a_formula_that_parses_is_valid(self, formula: str) -> None:
        assert valid("math", formula)

    @pytest.mark.parametrize("formula", ["", "9" * 61, r"\undefined{3}"])
    def test_an_empty_or_oversized_formula_is_not_valid(self, formula: str) -> None:
        assert not valid("math", formula)

    def test_an_answer_of_another_kind_is_valid_unless_it_is_empty(self) -> None:
        assert valid("choice", "B")
        assert not valid("exact", "")


NUMBERS = {
    "-0.5": Fraction(-1, 2),
    ".5": Fraction(1, 2),
    "5.": Fraction(5),
    "1,234,567.5": Fraction(2469135, 2),
    "2E-2": Fraction(1, 50),
    "3/4": Fraction(3, 4),
    "+7": Fraction(7),
    r"\frac{3}{4}": Fraction(3, 4),
    r"-\tfrac{3}{4}": Fraction(-3, 4),
}
NOT_NUMBERS = [
    "1,23",
    "e5",
    ".",
    "",
    "1e1000",
    "--1",
    "1/0",
    "0x10",
    "1 2",
    "9" * 61,
]


class TestPlainNumbers:
    @pytest.mark.parametrize(("text", "number"), NUMBERS.items())
    def test_a_number_is_read_exactly(self, text: str, number: Fraction) -> None:
        assert numbers.rational(text) == number

    @pytest.mark.parametrize("text", NOT_NUMBERS)
    def test_other_text_is_not_a_number(self, text: str) -> None:
        assert numbers.rational(text) is None


class TestSpelling:
    """Names that vote, without the points that carry no meaning."""

    SPELLINGS = {
        "U.S.": "us",
        "Dr. No": "dr no",
        "1.": "1",
        "3.5": "3.5",
        ".5": ".5",
        "-.5": "-.5",
    }

    @pytest.mark.parametrize(("name", "spelling"), SPELLINGS.items())
    def test_only_points_of_words_are_dropped(self, name: str, spelling: str) -> None:
        assert exact.spelling(name) == spelling


class TestVerdicts:
    @pytest.mark.parametrize("kind", KINDS)
    def test_no_answer_is_wrong(self, kind: str) -> None:
        assert verify(kind, None, "x").verdict == "wrong"

    def test_an_unknown_kind_is_refused(self) -> None:
        message = "kind must be one of math, choice, exact, float, got 'latex'"
        with pytest.raises(ValueError, match=message):
            verify("latex", "1", "1")
        with pytest.raises(ValueError, match=message):
            valid("latex", "1")

    def test_only_a_pass_is_correct_and_unscored_is_neither(self) -> None:
        assert Verdict("pass").correct is True
        assert Verdict("unscored").correct is None
        for failure in ("wrong", "error", "timeout", "memory", "output"):
            assert Verdict(failure).correct is False

    def test_many_come_back_in_order(self) -> None:
        items = [
            ("exact", "a", "a"),
            ("math", "x+x", "2x"),
            ("math", "9^{9^9}", "42"),
            ("choice", "A", "B"),
            ("math", "x+x", "3x"),
            ("exact", None, "a"),
        ]
        correct = [verdict.correct for verdict in verify_many(items)]
        assert correct == [True, True, False, False, False, False]
