"""Control arms: other rewards, and an oracle as judge."""

from collections import defaultdict
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest
from small_runs import assert_same_bytes, train_small

from coevolve.advantages.segments import segments
from coevolve.cli import main
from coevolve.methods.base import Method
from coevolve.methods.baselines.srt import SRT
from coevolve.methods.conl.metrics import ranking_correct
from coevolve.methods.conl.parsing import ranking
from coevolve.methods.mae.method import MAE
from coevolve.methods.registry import METHODS, get_method
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.runs import record
from coevolve.text import prompts
from coevolve.training.config import build
from coevolve.training.controls import rewards
from coevolve.training.controls.control import Control
from coevolve.training.controls.control import check as config_check
from coevolve.training.controls.dial import Dial
from coevolve.training.controls.oracle_judge import (
    ORACLE,
    REVIEW,
    VERDICTS,
    OracleJudge,
    _rank,
    replace_text,
)
from coevolve.training.controls.rewards import answered_question
from coevolve.training.metrics import step_metrics
from coevolve.training.trainer import Trainer
from coevolve.types import Outcome, Reply, Role, Sample, Turn
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
    paid = rewards.by_oracle([outcome], Dial(WORLD), MAE())
    assert [one.reward for one in paid[0].samples] == [1.0, 0.0, 0.25]
    assert paid[0].facts["reward_correct"] == 1.0


def test_the_oracle_pays_the_revised_solutions_of_srt_m():
    texts = ["<revised_solution>ANSWER: 7</revised_solution>", "ANSWER: 6"]
    samples = [
        sample("revision", 0.5, text, "conl/revision", query="3+4") for text in texts
    ]
    outcome = Outcome([*samples, sample("verdict", 0.25, source="conl/verdict")])
    (paid,) = rewards.by_oracle([outcome], Dial(WORLD), SRT(form="multi"))
    assert [one.reward for one in paid.samples] == [1.0, 0.0, 0.25]


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
        MAE(),
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
        ("srlm", {"control": "random"}, "control must be empty for srlm"),
        ("base", {"control": "oracle"}, "control must be empty for base"),
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


@pytest.mark.parametrize("variant", ["compact", "full"])
@pytest.mark.parametrize("source", sorted([*VERDICTS, REVIEW]))
def test_the_oracle_reads_what_a_judges_prompt_shows(source, variant):
    paper, name = source.split("/")
    role = prompts.load_role(paper, name, variant)
    fields = dict.fromkeys(role.fields, "3+4")
    verdict = VERDICTS.get(source, _rank)(Dial(WORLD), fields, (0,))
    assert isinstance(verdict, str)


NO_REWARDS = ("sft", "srlm", "base")
NEW_REWARDS = ("random", "shuffled", "format")


def played(trainer, control):
    """One step's outcomes of a run's method under a control, from untrained policies."""
    method = trainer.method
    items_of_pools = {name: list(pool.items) for name, pool in method.pools.items()}
    trainer.control = replace(trainer.control, name=control)
    outcomes = trainer.play(1)
    for name, items in items_of_pools.items():
        method.pools[name].reset(items)
    return outcomes


def texts_of(outcomes):
    """Return role and text of every sample, in order."""
    texts = []
    for outcome in outcomes:
        texts += [(one.role, one.reply.text) for one in outcome.samples]
    return texts


def numbers_of(outcomes):
    """Return the rewards of all samples by role and segment, masked ones left out."""
    numbers = defaultdict(list)
    for outcome in outcomes:
        for one in outcome.samples:
            for segment, reward in segments(one).items():
                if reward is not None:
                    numbers[one.role, segment].append(reward)
    return numbers


PAPERS = ("mae", "sage", "spice", "comas", "conl")
REWARDED = [
    pytest.param(name, marks=() if name in PAPERS else pytest.mark.thorough)
    for name in sorted(set(METHODS) - set(NO_REWARDS))
]


@pytest.mark.parametrize("name", REWARDED)
def test_every_method_that_learns_from_rewards_has_every_control(name, tmp_path):
    overrides = {"batch_size": 4}
    trainer = Trainer(build(name, "smoke", out=tmp_path, overrides=overrides))
    own = played(trainer, "")
    arms = {control: played(trainer, control) for control in NEW_REWARDS}
    for control, outcomes in arms.items():
        assert texts_of(outcomes) == texts_of(own), control
        counts = {key: len(paid) for key, paid in numbers_of(outcomes).items()}
        assert counts == {key: len(paid) for key, paid in numbers_of(own).items()}
    earned = numbers_of(own)
    for key, dealt in numbers_of(arms["shuffled"]).items():
        assert sorted(dealt) == sorted(earned[key])
    for drawn in numbers_of(arms["random"]).values():
        assert all(0 < number < 1 for number in drawn)
    for paid in numbers_of(arms["format"]).values():
        assert set(paid) <= {0.0, 1.0}

    method = trainer.method
    config_check("oracle", method, name)
    judged = played(trainer, "oracle")
    spoken_for = 0
    for outcome in judged:
        for one in outcome.samples:
            source = one.reply.turn.source
            is_judges = source in VERDICTS
            assert is_judges == (one.policy == ORACLE)
            spoken_for += is_judges or answered_question(one.reply, method) is not None
    assert spoken_for, "the oracle had nothing to say"


OWN = """
from coevolve import Outcome, Role
from coevolve.methods.mae.method import MAE


class Mine(MAE):
    def define_roles(self):
        super().define_roles()
        {change}
"""


def own_method(folder, change):
    """Write a user's subclass of MAE; return how a command names it."""
    file = folder / "mine.py"
    file.write_text(OWN.format(change=change), encoding="utf-8")
    return f"{file}:Mine"


def test_a_users_subclass_has_the_controls_of_its_paper(tmp_path):
    name = own_method(tmp_path, "self.extra = self.role('solver', 'extra')")
    fields = {"control": "oracle"}
    trainer = Trainer(build(name, "smoke", out=tmp_path / "run", overrides=fields))
    policies = {one.policy for one in samples_of(trainer.play(1), "judge")}
    assert policies == {ORACLE}


def test_the_oracle_does_not_replace_half_of_a_judge(tmp_path):
    own_judge = "Role('judge', 'Is it? {question} {answer}')"
    name = own_method(tmp_path, f"self.judge_answer = {own_judge}")
    with pytest.raises(ValueError, match="cannot speak for 'judge' of") as raised:
        build(name, "smoke", out=tmp_path / "run", overrides={"control": "oracle"})
    assert "\n" not in str(raised.value)


class Asker(Method):
    """A method with prompts of its own; nobody judges, and a vote pays the answers."""

    def define_roles(self) -> None:
        self.solver = Role("solver", "What is {question}?")
        self.friend = Role("friend", "Cheer {question} on")


def own_samples():
    """Return a right, a wrong and an unreadable answer, and a reply of another role."""
    method = Asker()
    ask = method.solver(question="3+4")
    texts = ["<answer>7</answer>", "<answer>6</answer>", "seven"]
    samples = [Reply(ask, text).earns(0.5) for text in texts]
    cheer = method.friend(question="3+4")
    samples.append(Reply(cheer, "go").earns(0.25))
    return method, [Outcome(samples)]


def test_the_oracle_pays_the_answers_of_a_users_prompt():
    method, outcomes = own_samples()
    (paid,) = rewards.by_oracle(outcomes, Dial(WORLD), method)
    assert [one.reward for one in paid.samples] == [1.0, 0.0, 0.0, 0.25]


def test_an_answer_to_a_users_prompt_has_the_form_that_the_method_reads():
    method, outcomes = own_samples()
    (paid,) = rewards.by_form(outcomes, method)
    assert [one.reward for one in paid.samples] == [1.0, 1.0, 0.0, 1.0]


def test_what_an_oracle_says_is_no_reward_of_the_judge(tmp_path):
    fields = {"control": "oracle"}
    trainer = Trainer(build("mae", "smoke", out=tmp_path, overrides=fields))
    outcomes = trainer.play(1)
    assert samples_of(outcomes, "judge")
    metrics = step_metrics(outcomes, {}, trainer.method)
    assert "reward/solver" in metrics
    assert "reward/judge" not in metrics


THOROUGH = [
    pytest.param(name, marks=pytest.mark.thorough) for name in ("random", "oracle")
]


@pytest.mark.parametrize("control", ["shuffled", *THOROUGH])
def test_a_control_arm_resumes_with_the_same_bytes(control, tmp_path):
    whole = train_small(tmp_path / "whole", control=control)
    parts = train_small(tmp_path / "parts", control=control, steps=2)
    # The first part's scores are of step 2; the same folder goes on to step 4.
    train_small(parts, control=control)
    assert_same_bytes(whole, parts)


def test_a_list_of_runs_names_the_control_arms(tmp_path, capsys):
    train_small(tmp_path / "arm", control="shuffled", steps=1)
    train_small(tmp_path / "own", steps=1)
    capsys.readouterr()
    assert main(["runs", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    rows = {row.split(" | ")[0]: row for row in listed.splitlines()}
    assert "control=shuffled" in rows["| arm"]
    assert "control=''" in rows["| own"]


def test_a_transcript_says_where_an_oracle_spoke(tmp_path):
    out = train_small(tmp_path / "arm", control="oracle", steps=1)
    episodes = record.read(out, "episodes")
    judges = []
    for said in episodes["samples"]:
        judges += [one for one in said if one["role"] == "judge"]
    assert judges
    for judge in judges:
        assert judge["policy"] == ORACLE
        assert judge["tokens"] == 0
        assert judge["text"] in ("<score>1</score>", "<score>10</score>")
