"""Strategies at work: scores with an exact oracle, `ask`, and the embedded backbone."""

import re
import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pandas
import pytest
from core.conftest import Scripted, text

from coevolve.engines.loading import load_policy
from coevolve.engines.router import make_engine
from coevolve.evaluation.scoring import count_correct, gain, score
from coevolve.evaluation.strategies import STRATEGIES, ask
from coevolve.methods.mae import MAE
from coevolve.models.policy_set import PolicySet
from coevolve.runs.record import SCORE_FIELDS
from coevolve.types import Reply, Turn
from tinyworld import tasks as tiny

UNGRADED = "9+0"


def sum_item(
    question: str,
    temperature: float | None = None,
    misconception: str | None = "wrong",
    level: int | None = 2,
) -> SimpleNamespace:
    """A held-out item whose answer is its first number."""
    return SimpleNamespace(
        question=question,
        family="sums",
        split="test",
        temperature=temperature,
        misconception=misconception,
        level=level,
    )


class FirstNumbers:
    """A world that grades these items, all but one."""

    def grade(
        self, pairs: Sequence[tuple[SimpleNamespace, str | None]]
    ) -> list[bool | None]:
        verdicts: list[bool | None] = []
        for item, answer in pairs:
            is_correct = answer == item.question[0]
            verdicts.append(None if item.question == UNGRADED else is_correct)
        return verdicts


SIX_ITEMS = [sum_item(f"{number}+0") for number in range(1, 7)]
METHOD = MAE(world=FirstNumbers())


def never(turn: Turn) -> bool:
    return False


def always(turn: Turn) -> bool:
    return True


def oracle(is_wrong: Callable[[Turn], bool] = never) -> Scripted:
    """An engine that answers in every form at once and accepts every solution."""

    def reply(turn: Turn) -> Reply:
        (question,) = re.findall(r"<question>(.*?)</question>", text(turn))
        answer = "wrong" if is_wrong(turn) else question[0]
        completion = (
            f"<answer>{answer}</answer> \\boxed{{{answer}}}\n"
            f"<revised_solution>\nANSWER: {answer}\n</revised_solution>\n"
            "verdict: right"
        )
        return Reply(turn, completion, prompt_ids=(1,), completion_ids=(2, 3))

    return Scripted(reply)


def speakers(engine: Scripted) -> str:
    return "".join(turn.policy for turn in engine.asked)


class TestScore:
    """Scores of held-out items."""

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_correct_answers_count_under_every_strategy(self, name: str) -> None:
        rows = score(oracle(), METHOD, SIX_ITEMS, name)
        assert count_correct(rows) == {"k": 6, "n": 6}
        assert [row["item"] for row in rows] == list(range(6))
        assert {row["strategy"] for row in rows} == {name}
        assert {row["misconception"] for row in rows} == {0}

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_typical_mistakes_are_recognised_under_every_strategy(
        self, name: str
    ) -> None:
        rows = score(oracle(always), METHOD, SIX_ITEMS, name)
        assert count_correct(rows) == {"k": 0, "n": 6}
        assert {row["misconception"] for row in rows} == {1}

    def test_a_row_has_the_fields_of_the_record_but_the_stage(self) -> None:
        (row,) = score(oracle(), METHOD, SIX_ITEMS[:1])
        assert sorted(["stage", *row]) == sorted(SCORE_FIELDS)

    def test_a_row_describes_the_item_the_answer_and_its_cost(self) -> None:
        ungraded = sum_item(UNGRADED, misconception=None, level=None)
        _, row = score(oracle(), METHOD, [ungraded, SIX_ITEMS[0]])
        expected = {
            "strategy": "vanilla",
            "family": "sums",
            "split": "test",
            "level": 2,
            "item": 1,
            "question": "1+0",
            "correct": 1,
            "misconception": 0,
            "answer": "1",
            "finished": True,
            "tokens_in": 1,
            "tokens_out": 2,
        }
        assert row == expected
        assert list(row) == list(expected), "the order of the columns"

    def test_an_answer_that_no_verifier_can_grade_is_not_counted(self) -> None:
        ungraded = sum_item(UNGRADED, misconception=None, level=None)
        rows = score(oracle(), METHOD, [ungraded, SIX_ITEMS[0]])
        assert rows[0]["correct"] is None
        assert rows[0]["misconception"] == 0
        assert rows[0]["level"] is None
        assert count_correct(rows) == {"k": 1, "n": 1}

    def test_items_are_dealt_to_policies_in_turn(self) -> None:
        engine = oracle(lambda turn: turn.policy == "b")
        rows = score(engine, METHOD, SIX_ITEMS, policies=("a", "b", "c"))
        assert [row["correct"] for row in rows] == [1, 0, 1, 1, 0, 1]

    def test_the_policies_that_follow_speak_for_the_other_agents(self) -> None:
        engine = oracle()
        score(engine, METHOD, SIX_ITEMS[:2], "consistency", policies=("a", "b"))
        assert speakers(engine) == "ababa" + "babab"

    @pytest.mark.parametrize(
        ("name", "of_item", "of_caller", "temperature"),
        [
            pytest.param("vanilla", None, None, 0.0, id="vanilla is greedy"),
            pytest.param("vanilla", 0.6, None, 0.6, id="the item's, as in its paper"),
            pytest.param("vanilla", 0.6, 1.0, 1.0, id="the caller's"),
            pytest.param("consistency", None, None, 0.7, id="the strategy's"),
            pytest.param("debate", None, 0.0, 0.0, id="the caller's 0"),
        ],
    )
    def test_the_temperature_is_the_callers_or_the_items_or_the_strategys(
        self,
        name: str,
        of_item: float | None,
        of_caller: float | None,
        temperature: float,
    ) -> None:
        engine = oracle()
        items = [sum_item("1+0", of_item)]
        score(engine, METHOD, items, name, temperature=of_caller)
        assert {turn.temperature for turn in engine.asked} == {temperature}


class TestGain:
    """The accuracy gained by training."""

    @pytest.fixture
    def scores(self) -> pandas.DataFrame:
        """Two questions, both correct only after training."""
        return pandas.DataFrame(
            {
                "stage": ["before", "after", "before", "after"],
                "item": [0, 0, 1, 1],
                "correct": [0, 1, 0, 1],
                "strategy": "vanilla",
            }
        )

    def test_it_has_no_limits_where_all_questions_changed_alike(
        self, scores: pandas.DataFrame
    ) -> None:
        assert repr(gain(scores)) == "(100.0, nan, nan)"

    def test_it_has_no_limits_where_no_answer_was_graded(
        self, scores: pandas.DataFrame
    ) -> None:
        assert repr(gain(scores.assign(correct=None))) == "(0.0, nan, nan)"

    def test_it_has_no_limits_where_no_question_was_scored(
        self, scores: pandas.DataFrame
    ) -> None:
        assert repr(gain(scores[:0])) == "(0.0, nan, nan)"


@pytest.mark.parametrize(
    ("name", "turns"), [("consistency_summed", 5 + 1), ("debate_summed", 3 + 3 + 1)]
)
def test_maslabs_strategies_end_with_a_solution_that_sums_up(
    name: str, turns: int
) -> None:
    def reads_no_solution(turn: Turn) -> bool:
        return "solution>" not in text(turn)

    engine = oracle(is_wrong=reads_no_solution)
    assert ask(engine, "3+4", name)["answer"] == "3"
    assert len(engine.asked) == turns


class TestAsk:
    """One question or several, one policy or several."""

    def test_one_question_has_one_answer(self) -> None:
        facts = ask(oracle(), "3+4", strategy="debate")
        assert facts["answer"] == "3"
        assert facts["votes"] == 4

    def test_several_questions_have_a_list_of_answers(self) -> None:
        several = ask(oracle(), ["3+4", "2+2"], "consistency")
        assert [facts["answer"] for facts in several] == ["3", "2"]

    def test_no_question_has_no_answer(self) -> None:
        assert ask(oracle(), [], "vanilla") == []

    def test_an_engine_speaks_with_several_policies_and_a_policy_by_itself(
        self,
    ) -> None:
        team = PolicySet({"one": "tiny", "two": "tiny-small"}, ("one", "two"))
        engine = make_engine(team, "torch", 1.0, 64)
        debates = ask(
            engine,
            ["3+4", "2+2"],
            strategy="debate",
            agents=2,
            rounds=1,
            policies=team.trained,
        )
        assert [len(facts["answers"]) for facts in debates] == [2, 2]
        by_policy = ask(team.policies["one"], "3+4")
        by_engine = ask(engine, "3+4", policies=["one"])
        assert by_policy["answer"] == by_engine["answer"]

    @pytest.mark.parametrize(
        ("options", "max_tokens"),
        [
            ({}, 64),
            ({"agents": 8}, 320),
            ({"agents": 8, "max_tokens": 9}, 9),
            ({"prompt": "full", "agents": 8}, 4096),
        ],
    )
    def test_the_limit_of_compact_prompts_grows_with_the_agents(
        self, options: dict, max_tokens: int
    ) -> None:
        engine = Scripted(lambda turn: "")
        ask(engine, "3+4", "top_ranked", **options)
        assert {turn.max_tokens for turn in engine.asked} == {max_tokens}


class TestCutReplies:
    """Replies that reach max_tokens."""

    QUESTIONS = ["3+4", "2+2", "1+1"]

    def engine(self, *cut_questions: int) -> Scripted:
        """An engine whose first reply to each of these questions is cut off."""

        def reply(turn: Turn) -> Reply:
            question, number = turn.key[-2:]
            is_cut = question in cut_questions and number == 0
            return Reply(turn, "", finished=not is_cut)

        return Scripted(reply)

    def test_ask_warns_once_of_the_conversations(self) -> None:
        message = r"max_tokens=64 in 2 of 3 conversations \(strategy 'consistency'\)"
        with pytest.warns(UserWarning, match=message) as caught:
            several = ask(self.engine(0, 2), self.QUESTIONS, "consistency")
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert [facts["finished"] for facts in several] == [False, True, False]

    def test_without_them_there_is_no_warning(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ask(self.engine(), self.QUESTIONS, "debate")


class TestEmbeddedBackbone:
    """The model that comes with the package."""

    @pytest.fixture
    def questions(self) -> list[str]:
        return [task.question for task in tiny.items("validation", 1)]

    def test_eight_agents_finish_their_replies_and_are_ranked(
        self, questions: list[str]
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            policy = load_policy("tiny")
            several = ask(policy, questions[:4], "top_ranked", agents=8)
        assert all(facts["finished"] for facts in several)
        assert any(len(set(facts["scores"])) > 1 for facts in several)

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_it_speaks_every_strategy_with_noise_by_key(
        self, name: str, questions: list[str]
    ) -> None:
        policy = load_policy("tiny")
        several = ask(policy, questions[:8], strategy=name)
        answered = [facts for facts in several if facts["answer"] is not None]
        assert len(answered) >= 5, "it slips now and then, by design"
        assert several == ask(policy, questions[:8], strategy=name)
