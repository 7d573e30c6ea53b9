"""Control arms: other rewards, an oracle as judge, and the dial of its accuracy."""

from collections import Counter
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from coevolve.methods.conl.metrics import ranking_correct
from coevolve.methods.conl.parsing import ranking
from coevolve.methods.mae.method import MAE
from coevolve.methods.registry import METHODS, get_method
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.text import prompts
from coevolve.training.config import build
from coevolve.training.controls import rewards
from coevolve.training.controls.control import Control
from coevolve.training.controls.dial import Dial
from coevolve.training.controls.forms import FORMS, has_form
from coevolve.training.controls.oracle_judge import VERDICTS, OracleJudge, replace_text
from coevolve.types import Outcome, Reply, Sample, Turn
from tinyworld import TinyWorld, tasks

WORLD = TinyWorld()
WRONG = "<answer>x</answer>"
QUESTIONS = [task.question for task in tasks.items("train", 60, ("add", "sub", "word"))]


def sample(role, reward, text="<answer>1</answer>", source="mae/solver", **fields):
    """A sample of a role, as a method would make it."""
    turn = Turn(role, (), source=source, fields=fields)
    return Sample(Reply(turn, text), reward)


def samples_of(outcomes, role):
    """Return all samples of a role."""
    samples = []
    for outcome in outcomes:
        samples += [one for one in outcome.samples if one.role == role]
    return samples


def rewards_of(outcomes, role):
    """Return all rewards of a role."""
    return [one.reward for one in samples_of(outcomes, role)]


def test_shuffled_rewards_stay_in_their_role_and_step():
    first = Outcome([sample("solver", i / 10) for i in range(10)])
    second = Outcome([sample("judge", 5 + i) for i in range(10)])
    dealt = rewards.shuffled([first, second], Random(0))
    in_order = [i / 10 for i in range(10)]
    assert sorted(rewards_of(dealt, "solver")) == in_order
    assert rewards_of(dealt, "solver") != in_order
    assert sorted(rewards_of(dealt, "judge")) == [5 + i for i in range(10)]


def test_shuffled_segments_keep_their_masks():
    paid = [{"critique": None, "ranking": 1.0}, {"critique": 2.0, "ranking": 3.0}]
    paid += [{"critique": 4.0, "ranking": None}]
    outcome = Outcome([sample("review", reward) for reward in paid])
    dealt = rewards_of(rewards.shuffled([outcome], Random(1)), "review")
    assert dealt[0]["critique"] is None
    assert dealt[2]["ranking"] is None
    critiques = [one["critique"] for one in dealt[1:]]
    assert sorted(critiques) == [2.0, 4.0]


def test_random_rewards_do_not_depend_on_the_reply():
    outcome = Outcome([sample("solver", 1.0) for _ in range(400)])
    drawn = rewards_of(rewards.random([outcome], Random(2)), "solver")
    assert 0 <= min(drawn) < 0.1 < 0.9 < max(drawn) <= 1
    assert 0.4 < fmean(drawn) < 0.6


def test_format_pays_the_form_alone():
    wrong = sample("solver", 0.0, "<answer>99</answer>", question="1+1")
    unreadable = sample("solver", 1.0, "2", question="1+1")
    cut_off = sample("solver", 1.0, "<answer>2</answer>", question="1+1")
    cut_off = replace(cut_off, reply=replace(cut_off.reply, finished=False))
    outcome = Outcome([wrong, unreadable, cut_off])
    paid = rewards.by_form([outcome])
    assert rewards_of(paid, "solver") == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("source", sorted(FORMS))
def test_every_form_belongs_to_a_shipped_prompt(source):
    paper, name = source.split("/")
    assert name in prompts.available(paper, "full")


def test_a_form_is_that_of_the_demonstrations():
    """Demonstrations that are well formed by the tiny world's patterns have the form here."""
    from tinyworld.demonstrations import ROLES, demonstrate, well_formed
    from tinyworld.demonstrator import Demonstrator

    rng = Demonstrator("forms")
    disagreements = Counter()
    for role in ROLES:
        for _ in range(60):
            shown = demonstrate(rng, role)
            reply = Reply(Turn("any", (), source=role), shown.completion)
            if role in FORMS and well_formed(role, shown.completion):
                disagreements[role] += not has_form(reply)
    assert not +disagreements


@pytest.mark.parametrize("accuracy", [0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("errors", ["random", "question", "level"])
def test_the_dial_is_as_often_right_as_it_says(accuracy, errors):
    dial = Dial(WORLD, accuracy, errors, seed=3)
    verdicts = []
    for number, question in enumerate(QUESTIONS * 6):
        answer = tasks.read(question).answer
        verdicts.append(dial.answer_is_correct(question, answer, (0, 0, number, 0)))
    # With errors by question there are 180 independent draws, and levels weigh a little unequally.
    tolerance = 0.12 if errors == "question" else 0.05
    assert fmean(verdicts) == pytest.approx(accuracy, abs=tolerance)


def test_errors_by_question_are_always_the_same():
    dial = Dial(WORLD, 0.7, "question")
    for question in QUESTIONS[:40]:
        answer = tasks.read(question).answer
        words = set()
        denials = set()
        for i in range(20):
            words.add(dial.answer_is_correct(question, answer, (i,)))
            denials.add(dial.answer_is_correct(question, "x", (i,)))
        assert len(words) == 1
        assert words != denials


def test_errors_by_level_fall_with_the_level():
    dial = Dial(WORLD, 0.75, "level")
    hits = {1: [], 2: [], 3: []}
    for number, task in enumerate(tasks.items("train", 160, ("word", "word2", "swap"))):
        for i in range(10):
            key = (number, i)
            verdict = dial.answer_is_correct(task.question, task.answer, key)
            hits[task.level].append(verdict)
    easy, middling, hard = map(fmean, hits.values())
    assert easy > middling + 0.1
    assert middling > hard + 0.1


def test_an_ill_formed_question_gets_a_coins_word():
    dial = Dial(WORLD)
    words = [dial.answer_is_correct("what is it", "2", (i,)) for i in range(400)]
    assert 0.4 < fmean(words) < 0.6


def mae_step(control, accuracy=1.0):
    """Outcomes of some episodes of MAE in which every solver answers right, or wrong."""
    method = MAE(solves=4, attempts=2)
    dial = Dial(WORLD, accuracy)
    arm = Control(control, method, dial, seed=0)

    def answer(turns):
        return [Reply(turn, spoken(turn)) for turn in turns]

    def spoken(turn):
        if turn.role == "proposer":
            return "<question>3+4</question>"
        if turn.role == "solver":
            task = tasks.read(turn.fields["question"])
            is_right = turn.key[-1] % 2
            return f"<answer>{task.answer}</answer>" if is_right else WRONG
        raise AssertionError(f"a policy was asked to judge: {turn}")

    rngs = [Random(i) for i in range(6)]
    engine = arm.engine(BatchedEngine(answer))
    outcomes = play([method.observed(rng) for rng in rngs], engine, (0, 1))
    return arm.pay(1, outcomes)


def test_an_oracle_judges_mae_without_a_line_in_it():
    outcomes = mae_step("oracle")
    wrong_answers = 0
    for one in samples_of(outcomes, "solver"):
        is_wrong = one.reply.text == WRONG
        wrong_answers += is_wrong
        # Half of the reward is for the form, which both have.
        assert one.reward == (0.5 if is_wrong else 1.0)
    assert 0 < wrong_answers < len(samples_of(outcomes, "solver"))
    # So it is never trained on.
    assert {one.policy for one in samples_of(outcomes, "judge")} == {"oracle"}


def test_a_dialled_oracle_errs_as_often_as_asked():
    outcomes = mae_step("oracle", accuracy=0.5)
    agreements = []
    for one in samples_of(outcomes, "solver"):
        is_wrong = one.reply.text == WRONG
        is_rewarded = one.reward == 1.0
        agreements.append(is_rewarded != is_wrong)
    assert 0 < sum(agreements) < len(agreements)


def test_conl_keeps_critiques_and_their_tokens_under_the_oracles_ranking():
    text = "hm<initial_ranking>Agent 1 > Agent 0</initial_ranking>"
    text += '<critique target="Agent 0">wrong</critique>'
    char_ends = tuple(range(1, len(text) + 1))  # a token per character
    turn = Turn("review", ())
    reply = Reply(turn, text, completion_ids=tuple(text), char_ends=char_ends)
    start = text.index("<initial")
    end = text.index("<critique")
    changed = replace_text(reply, start, end, "<initial_ranking></initial_ranking>")
    assert changed.text.startswith("hm<initial_ranking></initial_ranking><critique")
    # The tokens of the critique still end where its characters end.
    for token, char_end in zip(
        changed.completion_ids[end:], changed.char_ends[end:], strict=True
    ):
        assert changed.text[char_end - 1] == token


def test_the_oracle_ranks_solutions_by_their_answers():
    block = (
        "Agent 0<solution>ANSWER: 7</solution>\nAgent 1<solution>ANSWER: 6</solution>\n"
    )
    block += "Agent 2<solution>no line</solution>"
    fields = {"query": "3+4", "solutions": block, "agent": 1, "persona": "critic"}
    text = VERDICTS["conl/verdict"](Dial(WORLD), fields, (0,))
    lines = ["Agent 0 > Agent 1", "Agent 0 > Agent 2", "Agent 1 = Agent 2"]
    assert text == f"<final_ranking>{chr(10).join(lines)}</final_ranking>"


def test_a_review_without_a_ranking_gets_the_oracles_in_front():
    turn = Turn(
        "review", (), source="conl/review", fields={"query": "3+4", "solutions": ""}
    )
    inner = BatchedEngine(
        lambda turns: [Reply(one, "hm", char_ends=(1, 2)) for one in turns]
    )
    engine = OracleJudge(inner, Dial(WORLD))
    (reply,) = engine.answer([turn])
    assert reply.text == "<initial_ranking></initial_ranking>hm"
    assert reply.char_ends == (len(reply.text) - 1, len(reply.text))


def test_votes_and_gold_answers_give_way_to_the_oracle():
    right = sample("solver", 0.0, "<answer>7</answer>", question="3+4")
    wrong = sample("solver", 1.0, "<answer>6</answer>", question="3+4")
    other = sample("proposer", 0.25, source="mae/proposer")
    outcome = Outcome([right, wrong, other])
    method = MAE()
    paid = rewards.by_oracle([outcome], Dial(WORLD), method.read_answer)
    assert [one.reward for one in paid[0].samples] == [1.0, 0.0, 0.25]
    assert paid[0].facts["reward_correct"] == 1.0


@pytest.mark.parametrize("accuracy", [0.5, 0.7, 1.0])
def test_the_accuracy_of_the_oracles_rewards_is_recorded(accuracy):
    answers = []
    for number, question in enumerate(QUESTIONS * 6):
        text = "<answer>x</answer>" if number % 2 else "no answer"
        turn = Turn("solver", (), source="mae/solver", fields={"question": question})
        reply = Reply(replace(turn, key=(number,)), text)
        answers.append(Sample(reply, 0.0))
    (paid,) = rewards.by_oracle(
        [Outcome(answers, facts={"correct": 0.0})],
        Dial(WORLD, accuracy),
        MAE().read_answer,
    )
    assert paid.facts["correct"] == 0.0
    assert paid.facts["reward_correct"] == pytest.approx(accuracy, abs=0.05)


@pytest.mark.parametrize("accuracy", [0.5, 0.7, 1.0])
def test_votes_of_the_oracle_are_as_often_right_as_it_says(accuracy):
    """Ties, which count half, make up for the pairs of which both solutions are misjudged."""
    block = (
        "Agent 0<solution>ANSWER: 7</solution>\nAgent 1<solution>ANSWER: 6</solution>"
    )
    fields = {"query": "3+4", "solutions": block}
    dial = Dial(WORLD, accuracy)
    rankings = []
    for number in range(600):
        text = VERDICTS["conl/verdict"](dial, fields, (number,))
        rankings.append(ranking(text, "final_ranking", agents=2))
    share = ranking_correct(rankings, [True, False])
    assert share == pytest.approx(accuracy, abs=0.05)


@pytest.mark.parametrize(
    ("method", "overrides", "words"),
    [
        ("sft", {"control": "shuffled"}, "control must be empty for sft"),
        ("mae", {"control": "placebo"}, "control must be"),
        ("mae", {"oracle_accuracy": 0.7}, "oracle_accuracy must be 1.0 unless control"),
        (
            "mae",
            {"control": "oracle", "oracle_accuracy": 0.3},
            "oracle_accuracy must be",
        ),
        (
            "azr",
            {"control": "oracle", "oracle_errors": "never"},
            "oracle_errors must be",
        ),
    ],
)
def test_a_wrong_control_is_refused_in_one_line(tmp_path, method, overrides, words):
    with pytest.raises(ValueError, match=words) as raised:
        build(method, "smoke", out=tmp_path, overrides=overrides)
    assert "\n" not in str(raised.value)


def test_the_oracle_needs_a_world_that_knows(tmp_path):
    class Silent(TinyWorld):
        name = "silent"

        def valid(self, question):
            return None

    overrides = {"control": "oracle", "world": Silent()}
    with pytest.raises(ValueError, match="needs a world with an oracle"):
        build("mae", "smoke", out=tmp_path, overrides=overrides)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_judges_prompt_is_known(name):
    """A role that is called judge, critic or the like has a verdict of the oracle."""
    method = get_method(name)()
    for role in method.roles.values():
        if role.name in ("judge", "critic", "evaluation", "scoring", "verdict"):
            assert role.source in VERDICTS
