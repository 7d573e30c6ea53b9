"""MAE against the paper, by hand: sections 4.1 to 4.3 and Algorithm 1, the ablations of Table 2, the settings."""

import re
from collections.abc import Callable
from random import Random

import pytest

from coevolve.driver import Batched, Steps, play
from coevolve.papers.mae.method import MAE
from coevolve.parse import tag
from coevolve.types import Outcome, Reply, Turn
from tinyworld import tasks as tiny

WITH, WITHOUT = 1, 0  # Random(1).random() is 0.13, Random(0).random() is 0.84


class Toy:
    """A world of sums whose oracle is this test."""

    def __init__(self, seeds: tuple[str, ...] = ("1+1",), held: tuple[str, ...] = ()):
        self.starts, self.held = seeds, held

    def seeds(self) -> list[str]:
        return list(self.starts)

    def zero(self) -> list[str]:
        return ["0+0"]

    def held_out(self, question: str) -> bool:
        return question in self.held

    def valid(self, question: str) -> bool:
        return re.fullmatch(r"\d\+\d", question) is not None

    def right(self, question: str, answer: str | None) -> bool | None:
        return answer == str(int(question[0]) + int(question[2])) if self.valid(question) else None

    def level(self, question: str) -> int | None:
        return (3 if question[0] == "9" else 1) if self.valid(question) else None


def prompts(turns: list[Turn]) -> list[str]:
    return [turn.messages[0]["content"] for turn in turns]


def earned(outcome: Outcome) -> list[tuple[str, float]]:
    return [(sample.role, sample.reward) for sample in outcome.samples]


def scripted(proposal: str = "<question>2+3</question>", quality: str = "<score>9</score>") -> Callable[[Turn], str]:
    """Right answers, judged by whether they are; the proposal and its quality as told."""

    def say(turn: Turn) -> str:
        prompt = turn.messages[0]["content"]
        if turn.role == "proposer":
            return proposal
        question = tag(prompt, "question")
        if turn.role == "solver":
            return f"<answer>{int(question[0]) + int(question[2])}</answer>" if question[1:2] == "+" else "none"
        return "<score>7</score>" if "<answer>" in prompt else quality

    return say


def run(say: Callable[[Turn], str], count: int = 1, first: int = 0, **fields) -> tuple[list[Outcome], list[Turn], MAE]:
    """Play `count` episodes of one step; return the outcomes, every turn asked, and the protocol."""
    fields.setdefault("world", Toy())
    mae, asked = MAE(**fields), []

    def generate(turns: list[Turn]) -> list[Reply]:
        asked.extend(turns)
        return [Reply(turn, say(turn)) for turn in turns]

    return play([mae.episode(Random(first + i)) for i in range(count)], Batched(generate)), asked, mae


@pytest.mark.parametrize(
    ("setting", "seed", "reference"),
    [
        ("zero", WITH, "0+0"),
        ("zero", WITHOUT, None),
        ("no", WITH, None),
        ("no", WITHOUT, None),
        ("half", WITH, "1+1"),
        ("half", WITHOUT, None),
        ("with", WITH, "1+1"),
        ("with", WITHOUT, "1+1"),
    ],
)
def test_a_whole_episode_by_hand(setting: str, seed: int, reference: str | None) -> None:
    mae = MAE(setting=setting, solves=2, world=Toy())
    steps = Steps(mae.episode(Random(seed)), Batched(lambda turns: []))
    assert prompts(steps.asked) == ["propose" if reference is None else f"propose<ref>{reference}</ref>"]  # 4-9
    steps.answer(["<think>a sum</think><question> 2+3 </question>"])
    assert prompts(steps.asked) == ["judge<question>2+3</question>"] + ["solve<question>2+3</question>"] * 5  # 10
    steps.answer(
        [
            "<score>8</score>",
            "<answer>5</answer>",
            "<answer>6</answer>",
            "<answer>7</answer>",
            "5",
            "<answer>5</answer><answer>5</answer>",
        ]
    )
    assert prompts(steps.asked) == [f"judge<question>2+3</question><answer>{a}</answer>" for a in (5, 6, 7)]
    steps.answer(["<score>10</score>", "<score>1</score>", "<score>X</score>"])
    asked = [re.fullmatch("solve<question>(.*)</question>", prompt)[1] for prompt in prompts(steps.asked)]  # 16
    assert len(asked) == 2 and set(asked) <= {"2+3", "0+0" if setting == "zero" else "1+1"}
    steps.answer(["<answer>2</answer>", "<answer>1</answer> or <answer>2</answer>"])  # 17
    assert prompts(steps.asked) == [f"judge<question>{asked[0]}</question><answer>2</answer>"]  # 18-19
    steps.answer(["<score>7</score>"])
    assert prompts(steps.asked) == [f"judge<question>{asked[0]}</question><answer>2</answer>"] * 2  # 20
    steps.answer(["<think>right</think><score>9</score>", "<score>9</score><score>9</score>"])  # 21
    outcome = steps.outcome
    # quality (8 - 1)/9; difficulty 1 - (1 + 0 + 0 + 0)/4: one judgement unreadable, two answers without a value
    assert earned(outcome) == [
        ("proposer", pytest.approx((7 / 9 + 3 / 4 + 1) / 3)),
        ("solver", pytest.approx((6 / 9 + 1) / 2)),
        ("solver", pytest.approx((0 + 0.5) / 2)),
        ("judge", 1.0),
        ("judge", 0.5),
    ]
    assert outcome.adds == {"questions": ["2+3"], "pairs": [(asked[0], "2")]}
    facts = outcome.facts
    assert facts["quality"] == pytest.approx(7 / 9) and facts["difficulty"] == 0.75
    assert (facts["proposal"], facts["reference"], facts["accepted"], facts["parsed"]) == ("2+3", reference, 1.0, 1.0)
    assert (facts["valid"], facts["level"], facts["true_difficulty"]) == (1.0, 1, pytest.approx(1 - 1 / 5))
    assert facts["unreadable"] == pytest.approx(1 / 4)  # one of the quality's and three of the attempts'
    assert (facts["answered"], facts["judged"]) == (0.5, pytest.approx(6 / 9))
    assert facts["right"] == float(asked[0] == "1+1")
    assert len(mae.questions) == 1 and len(mae.pairs) == 0, "nothing is committed before the step ends"


SHARES = [("zero", 70, 130), ("no", 0, 0), ("half", 70, 130), ("with", 200, 200)]


@pytest.mark.parametrize(("setting", "low", "high"), SHARES)
def test_how_often_a_reference_is_shown(setting: str, low: int, high: int) -> None:
    outcomes, asked, _ = run(scripted(), 200, setting=setting)
    shown = [prompt for prompt in prompts(asked) if prompt.startswith("propose<ref>")]
    assert low <= len(shown) <= high
    assert len(shown) == sum(outcome.facts["reference"] is not None for outcome in outcomes)


@pytest.mark.parametrize(
    ("text", "paid", "official"),
    [
        ("2+3", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("<question>2+3", 0.0, 0.0),
        ("<question> </question>", 0.0, 0.0),
        ("<question>2+3</question><question>2+3</question>", 0.5 / 3, 0.0),
    ],
)
def test_a_malformed_proposal_is_not_assessed_and_paid_by_format_only(text: str, paid: float, official: float) -> None:
    (outcome,), asked, _ = run(scripted(text), setting="no")
    judged = "judge<question>1+1</question><answer>2</answer>"
    assert prompts(asked) == ["propose", "solve<question>1+1</question>", judged, judged]
    assert earned(outcome)[0] == ("proposer", pytest.approx(paid))
    assert outcome.adds["questions"] == [] and outcome.facts["parsed"] == outcome.facts["accepted"] == 0.0
    theirs = run(scripted(text), setting="no", variant="official")[0][0]
    assert earned(theirs)[0] == ("proposer", official) and earned(theirs)[1:] == earned(outcome)[1:]


@pytest.mark.parametrize(
    ("judgement", "quality", "accepted"),
    [
        ("<score>10</score>", 1.0, True),
        ("<score>8</score>", 7 / 9, True),
        ("<score>7</score>", 6 / 9, False),
        ("<score>1</score>", 0.0, False),
        ("<score>11</score>", 0.5, False),
        ("8", 0.5, False),
        ("", 0.5, False),
        ("<score>8</score><score>8</score>", 0.5, False),
    ],
)
def test_quality_decides_what_enters_the_pool(judgement: str, quality: float, accepted: bool) -> None:
    (outcome,), _, _ = run(scripted(quality=judgement), setting="no")
    difficulty = 1 - 6 / 9  # all five attempts are judged 7
    assert earned(outcome)[0][1] == pytest.approx((quality + difficulty + 1) / 3)
    assert outcome.adds["questions"] == (["2+3"] if accepted else [])
    assert outcome.facts["accepted"] == accepted
    (theirs,), _, _ = run(scripted(quality=judgement), setting="no", variant="official")
    assert earned(theirs)[0][1] == pytest.approx((quality + (difficulty if accepted else 0) + 1) / 3)


def test_the_threshold_is_a_field() -> None:
    low = scripted(quality="<score>7</score>")
    assert run(low, setting="no", threshold=0.6)[0][0].adds["questions"] == ["2+3"]


def assess(*waves: list[str], **fields) -> Steps:
    """Answer an episode without reference by hand; the first replies are to its proposal."""
    steps = Steps(MAE(setting="no", world=Toy(), **fields).episode(Random(0)), Batched(lambda turns: []))
    for wave in waves:
        steps.answer(wave)
    return steps


def test_unreadable_judgements_leave_difficulty_and_solver_neutral() -> None:
    steps = assess(
        ["<question>2+3</question>"],
        ["hm"] + ["<answer>5</answer>"] * 5,
        ["<score>high</score>"] * 5,
        ["<answer>2</answer>"],
        [""],
        ["six"],
    )
    assert earned(steps.outcome) == [("proposer", pytest.approx((0.5 + 0.5 + 1) / 3)), ("solver", 0.75), ("judge", 0.0)]
    assert (steps.outcome.facts["unreadable"], steps.outcome.facts["judged"]) == (1.0, None)


def test_attempts_that_do_not_parse_count_as_unsolved_and_are_not_judged() -> None:
    steps = assess(["<question>2+3</question>"], ["<score>10</score>"] + ["5", "", "<answer></answer>", "?", "!"])
    assert [turn.role for turn in steps.asked] == ["solver"]
    steps.answer(["no tags"])
    assert earned(steps.outcome) == [("proposer", pytest.approx((1 + 1 + 1) / 3)), ("solver", 0.0)]
    assert steps.outcome.adds["pairs"] == [], "nothing to judge, no pair to draw"
    attempts = ["<answer>5</answer>", "5", "5"]
    steps = assess(
        ["<question>2+3</question>"], ["<score>10</score>", *attempts], ["<score>10</score>"], ["5"], attempts=3
    )
    assert earned(steps.outcome)[0][1] == pytest.approx((1 + 2 / 3 + 1) / 3)


@pytest.mark.parametrize("role", ["proposer", "solver", "judge"])
def test_without_training_a_role_its_samples_are_gone_and_the_others_untouched(role: str) -> None:
    others = tuple(name for name in ("proposer", "solver", "judge") if name != role)
    full, asked, _ = run(scripted(), 8, solves=2)
    less, same, _ = run(scripted(), 8, solves=2, train=others)
    for whole, part in zip(full, less, strict=True):
        assert part.samples == [sample for sample in whole.samples if sample.role != role] != whole.samples
        assert (part.facts, part.adds) == (whole.facts, whole.adds)
    assert asked == same, "the role still speaks"


def test_without_the_quality_filter_the_solver_is_trained_on_what_the_filter_keeps_out() -> None:
    def trained(**fields) -> list[str]:
        outcomes, _, _ = run(scripted(quality="<score>2</score>"), 30, solves=2, **fields)
        return prompts([s.reply.turn for outcome in outcomes for s in outcome.samples if s.role == "solver"])

    assert "solve<question>2+3</question>" not in trained()
    assert "solve<question>2+3</question>" in trained(quality_filter=False)
    assert run(scripted("2+3"), quality_filter=False)[0][0].adds["questions"] == [], "what does not parse is none"


def test_without_the_format_reward_its_weight_goes_to_the_others_and_the_judge_earns_nothing() -> None:
    (full,), asked, _ = run(scripted(quality="<score>10</score>"), setting="no")
    (bare,), same, _ = run(scripted(quality="<score>10</score>"), setting="no", format_reward=False)
    hard = 1 - 6 / 9
    assert earned(full) == [
        ("proposer", pytest.approx((1 + hard + 1) / 3)),
        ("solver", pytest.approx(5 / 6)),
        ("judge", 1.0),
    ]
    assert earned(bare) == [("proposer", pytest.approx((1 + hard) / 2)), ("solver", pytest.approx(6 / 9))]
    assert asked == same
    assert earned(run(scripted("2+3"), setting="no", format_reward=False)[0][0])[0] == ("proposer", 0.0)


def test_only_answers_to_drawn_questions_and_judgements_of_drawn_pairs_earn() -> None:
    outcomes, asked, _ = run(scripted(), 6, solves=3, judge_temperature=0.25)
    for i, outcome in enumerate(outcomes):
        mine = [turn for turn in asked if turn.key[0] == i]
        assert len(mine) == 1 + 6 + 5 + 3 + 3 + 3
        trained = [sample.reply.turn for sample in outcome.samples]
        assert trained == [mine[0], *mine[12:15], *mine[18:]]  # no attempts, no scoring
        assert all("<answer>" in turn.messages[0]["content"] for turn in trained if turn.role == "judge")
        assert all(turn.temperature is None for turn in trained), "what is trained is sampled like everything else"
        assert all(turn.temperature == 0.25 for turn in mine[7:12] + mine[15:18] + mine[1:2])


@pytest.mark.parametrize("variant", ["compact", "full"])
def test_a_proposer_sees_questions_and_never_an_answer(variant: str) -> None:
    rng, mae, seen = Random(5), MAE(setting="with", solves=2, prompt=variant), []

    def generate(turns: list[Turn]) -> list[Reply]:
        replies = []
        for turn in turns:
            task = tiny.draw(rng, rng.choice(tiny.NAMES))
            said = f"<question>{task.question}</question><answer>GOLD {task.answer}</answer><score>9</score>"
            replies.append(Reply(turn, said))
        seen.extend(turn for turn in turns if turn.role == "proposer")
        return replies

    for step in range(4):
        outcomes = play([mae.episode(Random(f"{step}/{i}")) for i in range(100)], Batched(generate))
        for name, pool in mae.pools.items():
            pool.extend(item for outcome in outcomes for item in outcome.adds[name])
    assert len(mae.questions) > len(mae.world.seeds()) and len(mae.pairs) == 800
    references = set(mae.questions.items)
    before, after = mae.proposer_reference.prompt.split("{reference}")
    for prompt in prompts(seen):
        question = prompt.removeprefix(before).removesuffix(after)
        assert before + question + after == prompt and question in references and "GOLD" not in prompt
        if variant == "compact":
            assert tiny.read(question).answer not in prompt.replace(question, "")


def test_a_held_out_question_is_assessed_but_never_enters_the_pool() -> None:
    world = Toy(held=("2+3",))
    outcomes, asked, _ = run(scripted(), 20, world=world, solves=2, quality_filter=False)
    assert not any(outcome.adds["questions"] for outcome in outcomes)
    assert prompts(asked).count("solve<question>2+3</question>") == 20 * 5, "attempts only"
    assert "2+3" not in {pair[0] for outcome in outcomes for pair in outcome.adds["pairs"]}


def test_pools_are_read_as_of_the_start_of_the_step() -> None:
    def say(turn: Turn) -> str:
        return f"<question>{turn.key[0]}+0</question>" if turn.role == "proposer" else scripted()(turn)

    outcomes, asked, mae = run(say, 9, setting="no", solves=8)
    for i, outcome in enumerate(outcomes):
        drawn = {tag(s.reply.turn.messages[0]["content"], "question") for s in outcome.samples if s.role != "proposer"}
        assert drawn <= {"1+1", f"{i}+0"}
        assert outcome.adds["questions"] == [f"{i}+0"] and len(outcome.adds["pairs"]) == 8
    assert mae.questions.items == ["1+1"] and mae.pairs.items == []
    mae.pairs.extend([("8+8", "16")])
    steps = Steps(mae.episode(Random(3)), Batched(lambda turns: [Reply(turn, "none") for turn in turns]))
    list(steps)  # nothing is answered in this episode, so the Judge draws what earlier steps left
    assert prompts([steps.replies[-1].turn]) == ["judge<question>8+8</question><answer>16</answer>"]


def test_the_pool_of_questions_starts_from_the_setting_and_measures_itself() -> None:
    assert MAE(setting="zero", world=Toy()).questions.items == ["0+0"]
    mae = MAE(world=Toy(("1+1", "9+1", "what", "1+1")))
    assert mae.questions.items == ["1+1", "9+1", "what"]
    assert mae.measure() == {"pool_ill_formed": pytest.approx(1 / 3), "pool_level_3": 0.5}
    assert MAE(world=Toy(("what",))).measure() == {"pool_ill_formed": None, "pool_level_3": None}
    assert len(MAE(setting="zero").questions) == 16


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("setting", "some"),
        ("variant", "theirs"),
        ("train", ("proposer", "teacher")),
        ("attempts", 0),
        ("solves", 0),
        ("judge_temperature", -1.0),
        ("prompt", "short"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field) as error:
        MAE(**{field: value}, world=Toy())
    assert "\n" not in str(error.value)
    assert str(value[-1] if isinstance(value, tuple) else value) in str(error.value)
