"""Inference strategies with scripted replies: who reads what, who votes, what is counted."""

import re
from dataclasses import dataclass
from itertools import cycle

import pytest
from core.conftest import Scripted, prompts
from hostile import CORPUS

from coevolve.evaluation import strategies
from coevolve.evaluation.conversation import Conversation
from coevolve.evaluation.scoring import score
from coevolve.evaluation.strategies import STRATEGIES
from coevolve.methods.base import Method
from coevolve.methods.spice import SPICE
from coevolve.rollout.scheduler import play
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.rollout.voting import majority
from coevolve.text.prompts import read
from coevolve.text.verify.exact import spelling
from coevolve.types import Outcome, Reply, Role, Turn

HEAD = "<question>1+1</question>"
SOLVE = "solve 1+1"


class Solve(Method):
    """A method with a solver's prompt of its own, which limits the length of a reply."""

    def define_roles(self) -> None:
        self.solver = Role("solver", "solve {problem}", max_tokens=9)


def tagged(*answers: object) -> list[str]:
    """Replies in the solver's own form."""
    return [f"so <answer>{answer}</answer>" for answer in answers]


def shown(*solutions: object) -> list[str]:
    """Solutions as the other agents read them with compact prompts."""
    return [f"<solution>\\boxed{{{solution}}}</solution>" for solution in solutions]


def speakers(wave: list[Turn]) -> str:
    """The policies of a wave, such as "aab"."""
    return "".join(turn.policy for turn in wave)


@dataclass(frozen=True)
class Played:
    """A strategy that was answered by hand."""

    waves: list[list[Turn]]
    outcome: Outcome

    @property
    def facts(self) -> dict[str, object]:
        return self.outcome.facts

    @property
    def speakers(self) -> list[str]:
        """The policies of every wave."""
        return [speakers(wave) for wave in self.waves]

    def prompts(self, wave: int) -> list[str]:
        return prompts(self.waves[wave])


def play_by_hand(
    name: str, *replies: list[str], policies: str = "a", prompt="compact", **numbers
) -> Played:
    """Answer a strategy wave after wave, until its end; each letter is a policy."""
    method = Solve(prompt=prompt)
    room = Conversation(method, "1+1", tuple(policies), temperature=0.3)
    steps = EpisodeStepper(STRATEGIES[name](room, **numbers), Scripted())
    waves = []
    for texts in replies:
        waves.append(steps.pending_turns)
        steps.answer(texts)
    pending = prompts(steps.pending_turns)
    assert steps.outcome is not None, f"still asking {pending}"
    return Played(waves, steps.outcome)


@pytest.mark.parametrize(
    ("answers", "winner", "votes"),
    [
        pytest.param(["1", "2", "2"], "2", 2, id="the most frequent"),
        pytest.param(["2", "1", "1", "2"], "2", 2, id="a tie: the one seen first"),
        pytest.param([None, None, "3"], "3", 1, id="unreadable answers do not vote"),
        pytest.param([None, None], None, 0, id="no vote"),
        pytest.param([], None, 0, id="no answer"),
        pytest.param(["", None, None], "", 1, id="empty is an answer, None is not"),
        pytest.param(["01", "1", "1"], "1", 2, id="texts, not numbers"),
    ],
)
def test_majority(answers: list[str | None], winner: str | None, votes: int) -> None:
    assert majority(answers) == (winner, votes)


@pytest.mark.parametrize(
    ("answers", "winner", "votes"),
    [
        pytest.param(["8", "$7$", "7."], "$7$", 2, id="as it was first written"),
        pytest.param(["Paris", None, "the paris"], "Paris", 2, id="case, articles"),
        pytest.param([None, None], None, 0, id="no vote"),
        pytest.param([">", "<", ">"], ">", 2, id="nothing but punctuation"),
    ],
)
def test_answers_of_one_spelling_vote_together(
    answers: list[str | None], winner: str | None, votes: int
) -> None:
    assert majority(answers, spelling) == (winner, votes)


def test_vanilla_asks_once() -> None:
    played = play_by_hand("vanilla", tagged(2))
    assert played.prompts(0) == [SOLVE]
    assert played.outcome.samples == []
    assert played.facts == {
        "answer": "2",
        "finished": True,
        "tokens_in": 0,
        "tokens_out": 0,
    }


def test_vanilla_reads_only_the_solvers_own_form() -> None:
    assert play_by_hand("vanilla", ["\\boxed{2}"]).facts["answer"] is None


class TestConsistency:
    """Self-Consistency."""

    @pytest.fixture
    def played(self) -> Played:
        replies = [*tagged(3), "?", *tagged(2, 2, 3)]
        return play_by_hand("consistency", replies, policies="ab")

    def test_five_samples_are_drawn_from_the_agents_in_turn(
        self, played: Played
    ) -> None:
        assert played.prompts(0) == [SOLVE] * 5
        assert played.speakers == ["ababa"]

    def test_every_sample_has_noise_of_its_own(self, played: Played) -> None:
        (wave,) = played.waves
        assert len({turn.key for turn in wave}) == 5

    def test_the_majority_wins_and_ties_go_to_the_first(self, played: Played) -> None:
        assert played.facts["answer"] == "3"
        assert played.facts["votes"] == 2
        assert played.facts["answers"] == ["3", None, "2", "2", "3"]

    def test_the_number_of_samples_can_be_set(self) -> None:
        played = play_by_hand("consistency", tagged(1), samples=1)
        assert len(played.waves[0]) == 1


class TestDebate:
    """CoNL's debate."""

    @pytest.fixture
    def played(self) -> Played:
        second_round = ["\\boxed{4}", "\\boxed{5}", "none"]
        third_round = [*tagged(7), "x", *tagged(8)]
        return play_by_hand(
            "debate", tagged(1, 2, 3), second_round, third_round, agents=3
        )

    def test_first_all_agents_solve_alone(self, played: Played) -> None:
        assert played.prompts(0) == [SOLVE] * 3

    def test_then_each_reads_its_own_solution_and_those_of_the_others(
        self, played: Played
    ) -> None:
        one, two, three = shown(1, 2, 3)
        assert played.prompts(1) == [
            f"solve box{HEAD}{one}\n{two}\n{three}",
            f"solve box{HEAD}{two}\n{one}\n{three}",
            f"solve box{HEAD}{three}\n{one}\n{two}",
        ]

    def test_only_the_last_solutions_are_shown(self, played: Played) -> None:
        four, five = shown(4, 5)
        unreadable = "<solution>none</solution>"
        prompt = played.prompts(2)[1]
        assert prompt == f"solve box{HEAD}{five}\n{four}\n{unreadable}"

    def test_the_last_round_votes(self, played: Played) -> None:
        assert played.facts["answers"] == ["7", None, "8"]
        assert played.facts["answer"] == "7"

    def test_the_default_is_four_agents_and_three_rounds(self) -> None:
        replies = tagged(2) * 4
        played = play_by_hand("debate", replies, replies, replies)
        assert played.facts["votes"] == 4

    def test_every_round_has_the_policy_temperature_and_limit_of_its_agent(
        self,
    ) -> None:
        played = play_by_hand(
            "debate",
            tagged(1, 1, 1),
            tagged(2, 2, 2),
            policies="ab",
            agents=3,
            rounds=2,
        )
        for wave in played.waves:
            settings = [(t.policy, t.temperature, t.max_tokens) for t in wave]
            assert settings == [("a", 0.3, 9), ("b", 0.3, 9), ("a", 0.3, 9)]

    def test_full_prompts_show_solutions_whole(self) -> None:
        played = play_by_hand(
            "debate",
            tagged(1, 2),
            ["\\boxed{1}"] * 2,
            agents=2,
            rounds=2,
            prompt="full",
        )
        own, other = (f"<solution>{text}</solution>\n" for text in tagged(1, 2))
        prompt = played.prompts(1)[0]
        assert f"Your own last solution:\n{own}" in prompt
        assert f"other agents' last solutions:\n{other}" in prompt


class TestSelfRefine:
    """Self-Refine."""

    @pytest.fixture
    def played(self) -> Played:
        return play_by_hand(
            "self_refine",
            tagged(0),
            ["1: wrong"],
            ["\\boxed{1}"],
            ["2: wrong"],
            ["\\boxed{2}"],
            ["2: right"],
            ["\\boxed{3}"],
            policies="ab",
        )

    def test_one_policy_criticises_and_solves_three_times(self, played: Played) -> None:
        assert played.speakers == ["a"] * 7
        assert played.facts["answers"] == ["0", "1", "2", "3"]
        assert played.facts["answer"] == "3"

    def test_prompts_show_the_last_two_rounds_as_in_comas(self, played: Played) -> None:
        zero, one, two = shown(0, 1, 2)
        first = f"{zero}\n<evaluation>1: wrong</evaluation>"
        second = f"{one}\n<evaluation>2: wrong</evaluation>"
        third = f"{two}\n<evaluation>2: right</evaluation>"
        prompt = [played.prompts(wave)[0] for wave in range(7)]
        assert prompt[1] == f"evaluate{HEAD}{zero}"
        assert prompt[2] == f"solve box{HEAD}{first}"
        assert prompt[3] == f"evaluate{HEAD}{first}{one}"
        assert prompt[4] == f"solve box{HEAD}{first}\n{second}"
        assert prompt[6] == f"solve box{HEAD}{second}\n{third}"

    def test_the_last_solution_counts_even_if_it_cannot_be_read(self) -> None:
        played = play_by_hand(
            "self_refine", tagged(2), ["2: right"], ["?"], iterations=1
        )
        assert played.facts["answer"] is None


class TestAutoGen:
    """AutoGen: an assistant and a user's proxy."""

    ACCEPTING = ["2: right", "fine\nverdict: right", "**Verdict: Right.**\n"]
    REFUSING = [
        "2: wrong",
        "verdict: right or wrong",
        "alright",
        "",
        "right",
        ": righteous",
    ]

    @pytest.mark.parametrize("verdict", ACCEPTING)
    def test_it_ends_when_the_proxy_accepts(self, verdict: str) -> None:
        played = play_by_hand("autogen", tagged(2), [verdict], policies="ab")
        assert played.speakers == ["a", "b"]
        assert played.facts["answer"] == "2"

    @pytest.mark.parametrize("verdict", ACCEPTING)
    def test_a_single_agent_is_its_own_proxy(self, verdict: str) -> None:
        played = play_by_hand("autogen", tagged(2), [verdict])
        assert played.speakers == ["a", "a"]

    @pytest.mark.parametrize("verdict", REFUSING)
    def test_otherwise_the_assistant_speaks_three_times(self, verdict: str) -> None:
        played = play_by_hand(
            "autogen",
            tagged(0),
            [verdict],
            tagged(1),
            [verdict],
            tagged(2),
            policies="ab",
        )
        assert played.speakers == ["a", "b", "a", "b", "a"]
        assert played.facts["answers"] == ["0", "1", "2"]
        zero, one = shown(0, 1)
        feedback = f"<evaluation>{verdict}</evaluation>"
        assert played.prompts(3) == [f"evaluate{HEAD}{zero}\n{feedback}{one}"]


class TestTopRanked:
    """CoNL's conversation."""

    @pytest.fixture
    def played(self) -> Played:
        revised = [
            "<revised_solution>ANSWER: 4</revised_solution>",
            "<revised_solution>ANSWER: 5</revised_solution>",
            "<revised_solution>ANSWER: </revised_solution>",
        ]
        verdicts = [
            "<final_ranking>Agent 1 > Agent 2</final_ranking>",
            "<final_ranking></final_ranking>",
            "<final_ranking>Agent 1 > Agent 0</final_ranking>",
        ]
        return play_by_hand(
            "top_ranked",
            ["ANSWER: 1", "ANSWER: 2", "ANSWER: 3"],
            ["<initial_ranking></initial_ranking>"] * 3,
            revised,
            verdicts,
            policies="ab",
            agents=3,
        )

    def test_the_rooms_policies_speak_all_four_rounds(self, played: Played) -> None:
        assert played.speakers == ["aba"] * 4
        assert {turn.temperature for turn in played.waves[3]} == {0.3}

    def test_every_prompt_shows_the_question(self, played: Played) -> None:
        for wave in range(4):
            assert all(HEAD in prompt for prompt in played.prompts(wave))

    def test_the_agent_with_the_highest_final_score_answers(
        self, played: Played
    ) -> None:
        assert played.facts["answers"] == ["4", "5", None]
        assert played.facts["answer"] == "5", "agent 1 won both of its comparisons"
        scores = played.facts["scores"]
        assert scores[1] > 0.5 > scores[0] == scores[2]

    def test_without_votes_the_first_agent_answers(self) -> None:
        proposals = ["ANSWER: 1", "ANSWER: 2", "ANSWER: 2", "ANSWER: 2"]
        unreadable = ["?"] * 4
        played = play_by_hand(
            "top_ranked", proposals, unreadable, unreadable, unreadable
        )
        assert played.facts["scores"] == [0.5] * 4
        assert played.facts["answer"] == "1"


class TestEveryStrategy:
    """What all strategies have in common."""

    PROMPT_TOKENS = (1, 2, 3)
    COMPLETION_TOKENS = (4, 5)

    def first_reply_cut(self, turn: Turn) -> Reply:
        """An answer that was cut off in the first turn of its episode."""
        (text,) = tagged(2)
        return Reply(
            turn,
            text,
            self.PROMPT_TOKENS,
            self.COMPLETION_TOKENS,
            finished=turn.key[-1] > 0,
        )

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_it_earns_nothing_and_adds_up_the_cost_of_all_replies(
        self, name: str
    ) -> None:
        engine = Scripted(self.first_reply_cut)
        (outcome,) = play([STRATEGIES[name](Conversation(Solve(), "1+1"))], engine)
        replies = len(engine.asked)
        assert outcome.samples == []
        assert outcome.adds == {}
        assert outcome.facts["tokens_in"] == 3 * replies
        assert outcome.facts["tokens_out"] == 2 * replies
        assert outcome.facts["finished"] is False

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_no_reply_breaks_it(self, name: str) -> None:
        inputs = [entry["input"] for entry in CORPUS]
        hostile = [text for text in inputs if isinstance(text, str)]
        texts = cycle(hostile)
        repeats = len(hostile[::8])
        episodes = []
        for method in (Solve(), SPICE()):
            for _ in range(repeats):
                episodes.append(STRATEGIES[name](Conversation(method, "1+1")))
        outcomes = play(episodes, Scripted(lambda turn: next(texts)))
        answers = [outcome.facts["answer"] for outcome in outcomes]
        assert all(answer is None or isinstance(answer, str) for answer in answers)


class TestMistakesOfUsers:
    """Each is refused in one line."""

    UNKNOWN = (
        r"^strategy must be one of vanilla, .*'vanila'; did you mean 'vanilla'[?]$"
    )

    def test_an_unknown_strategy_for_ask(self) -> None:
        with pytest.raises(ValueError, match=self.UNKNOWN):
            strategies.ask(Scripted(), "1+1", "vanila")

    def test_an_unknown_strategy_for_score(self) -> None:
        with pytest.raises(ValueError, match=self.UNKNOWN):
            score(Scripted(), Solve(), [], "vanila")

    def test_no_samples(self) -> None:
        with pytest.raises(ValueError, match=r"^samples must be at least 1, got 0$"):
            strategies.ask(Scripted(), "1+1", "consistency", samples=0)

    @pytest.mark.parametrize(
        ("strategy", "allowed"),
        [("debate", "agents, rounds"), ("vanilla", "no number")],
    )
    def test_a_number_that_the_strategy_does_not_take(
        self, strategy: str, allowed: str
    ) -> None:
        message = f"^strategy '{strategy}' takes {allowed}, got samples$"
        with pytest.raises(ValueError, match=message):
            strategies.ask(Scripted(), "1+1", strategy, samples=3)

    def test_a_solver_with_two_placeholders(self) -> None:
        method = Solve()
        method.solver = Role("solver", "{problem} {discussion}")
        message = r"^solver must have one placeholder.*\['discussion', 'problem'\]$"
        with pytest.raises(ValueError, match=message):
            Conversation(method, "1+1")


class TestPrompts:
    """The files of evaluation/prompts."""

    # Each with the prompt of CoMAS that the embedded backbone was trained on.
    TRAINED_AS = {
        "feedback": "evaluation",
        "proxy": "evaluation",
        "revision": "solution",
        "debate": "solution",
    }

    @pytest.mark.parametrize(("name", "trained_name"), TRAINED_AS.items())
    def test_compact_prompts_are_known_to_the_backbone(
        self, name: str, trained_name: str
    ) -> None:
        compact = read("strategies", name, "compact")
        trained = read("comas", trained_name, "compact")
        as_discussion = re.sub(r"\{own\}\n\{others\}", "{discussion}", compact)
        assert as_discussion == trained.replace("{problem}", "{question}")

    @pytest.mark.parametrize("name", TRAINED_AS)
    def test_full_prompts_ask_for_the_form_that_is_read(self, name: str) -> None:
        full = read("strategies", name)
        asks_for_box = "\\boxed{...}" in full
        asks_for_verdict = "verdict: right\nverdict: wrong" in full
        assert asks_for_box == (name in ("revision", "debate"))
        assert asks_for_verdict == (name == "proxy")
        assert "{question}" in full
