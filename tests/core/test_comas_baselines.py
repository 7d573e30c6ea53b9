"""CoMAS's baselines by hand: TTRL's vote, MAPoRL's debate and discounted verdicts, SRLM's pairs and DPO steps."""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
import torch
from tensors import policy_of

from coevolve import config, policies
from coevolve.baselines import maporl, ttrl
from coevolve.baselines.maporl import MAPoRL
from coevolve.baselines.srlm import SRLM, _plain_head, preference
from coevolve.baselines.ttrl import TTRL
from coevolve.driver import Batched, Steps, play
from coevolve.policies.adapters import attach
from coevolve.types import Outcome, Reply, Turn


class Toy:
    """A question that can be voted on and one that cannot; both have the answer 2."""

    def __init__(self, *domains: str):
        self.domains = domains or ("MATH",)

    def training(self) -> list[tuple[str, str]]:
        return [(domain, f"{domain}?") for domain in self.domains]

    def right(self, question: str, answer: str | None) -> bool | None:
        return None if question == "open?" else answer == "2"


def run(protocol: object, say: Callable[[Turn, int], str], seed: int = 0) -> tuple[Outcome, list[Turn]]:
    asked: list[Turn] = []

    def generate(turns: list[Turn]) -> list[Reply]:
        replies = [Reply(turn, say(turn, len(asked) + i)) for i, turn in enumerate(turns)]
        asked.extend(turns)
        return replies

    return play([protocol.episode(Random(seed))], Batched(generate))[0], asked


def text(turn: Turn) -> str:
    return turn.messages[0]["content"]


@pytest.mark.parametrize("cls", [TTRL, MAPoRL, SRLM])
def test_all_train_with_reinforce_on_comas_s_questions_and_read_boxes(cls: type) -> None:
    assert cls.TRAINING == config.method("comas").TRAINING
    protocol = cls(world=Toy())
    assert protocol.read(r"\boxed{7}") == "7"
    assert text(protocol.solver(question="q")) == "solve box<question>q</question>"
    assert getattr(protocol, "estimator", "reinforce_pp") == "reinforce_pp"


def test_majority_by_hand() -> None:
    assert ttrl.majority(["2", "3", None, "3", None, None]) == ("3", 2)
    assert ttrl.majority(["3", "2", "2", "3"]) == ("3", 2), "the earliest of equals"
    assert ttrl.majority([None, None]) == (None, 0) == ttrl.majority([])


def test_ttrl_pays_the_first_samples_by_the_vote_of_all() -> None:
    said = [r"\boxed{3}", r"\boxed{2}", "2", r"\boxed{3}", r"\boxed{3}"]
    outcome, asked = run(TTRL(votes=5, samples=3, world=Toy()), lambda turn, i: said[i])
    assert [text(turn) for turn in asked] == ["solve box<question>MATH?</question>"] * 5
    assert [(s.reward, s.group) for s in outcome.samples] == [(1.0, None), (0.0, None), (0.0, None)]
    facts = outcome.facts
    assert (facts["right"], facts["majority_right"], facts["voted"]) == (pytest.approx(1 / 5), 0.0, 1.0)


def test_ttrl_pays_nobody_when_no_answer_parses() -> None:
    outcome, _ = run(TTRL(votes=2, samples=2, world=Toy()), lambda turn, i: "2")
    assert [s.reward for s in outcome.samples] == [0.0, 0.0]


def test_ttrl_gives_dummy_rewards_where_there_is_no_vote() -> None:
    outcome, asked = run(
        TTRL(votes=5, samples=2, voting=("sums",), world=Toy("sums", "KodCode")), lambda turn, i: r"\boxed{2}", seed=1
    )
    assert text(asked[0]) == "solve box<question>sums?</question>"
    outcome, asked = run(TTRL(votes=5, samples=2, voting=(), world=Toy()), lambda turn, i: rf"\boxed{{{i}}}")
    assert len(asked) == 2, "no votes are bought"
    assert {(s.reward, s.group) for s in outcome.samples} == {(ttrl.DUMMY, "dummy")}
    assert (outcome.facts["voted"], outcome.facts["majority_right"]) == (0.0, None)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"votes": 0}, "votes"),
        ({"votes": 4, "samples": 5}, "samples"),
        ({"samples": 0}, "samples"),
        ({"voting": ("Math",)}, "voting"),
    ],
)
def test_ttrl_names_a_wrong_field(fields: dict, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be "):
        TTRL(**fields)


def test_maporl_s_reward_by_hand() -> None:
    values = [[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]  # verdicts of two agents in three rounds
    # Shared: 1, then means 0 and 1/2, with weights 1, 0.3, 0.09.
    assert maporl.reward(values, 0, 0, 0.3, True) == pytest.approx((1 + 0 + 0.09 * 0.5) / 1.39)
    assert maporl.reward(values, 0, 1, 0.3, True) == pytest.approx(0.09 * 0.5 / 1.39)
    assert maporl.reward(values, 1, 0, 0.3, False) == pytest.approx(0.3 * 1 / 1.3)
    assert maporl.reward(values, 2, 0, 0.3, True) == 1.0 and maporl.reward(values, 2, 1, 0.3, True) == 0.0
    assert maporl.reward(values, 0, 0, 0.0, True) == 1.0


def test_a_debate_by_hand() -> None:
    steps = Steps(MAPoRL(turns=2, world=Toy()).episode(Random(0)), Batched(lambda turns: []))
    assert [(turn.policy, text(turn)) for turn in steps.asked] == [
        (f"agent_{k}", "solve box<question>MATH?</question>") for k in (1, 2)
    ]
    steps.answer([r"\boxed{2}", r"\boxed{3}</solution>"])
    first, second = r"<solution>\boxed{2}</solution>", r"<solution>\boxed{3}&lt;/solution></solution>"
    assert [text(turn) for turn in steps.asked] == [
        f"solve box<question>MATH?</question>{first}\n{second}",
        f"solve box<question>MATH?</question>{second}\n{first}",
    ]
    steps.answer([r"\boxed{2}", "no idea"])
    earned = [(s.policy, s.reward) for s in steps.outcome.samples]
    assert earned == [
        ("agent_1", pytest.approx((1 + 0.3 * 0.5) / 1.3)),
        ("agent_2", pytest.approx(0.3 * 0.5 / 1.3)),
        ("agent_1", 1.0),
        ("agent_2", 0.0),
    ]
    facts = steps.outcome.facts
    assert (facts["right"], facts["right_first"], facts["right_last"], facts["interactions"]) == (0.5, 0.5, 0.5, 4)


def test_a_question_without_a_verifier_pays_nobody() -> None:
    outcome, _ = run(MAPoRL(world=Toy("open")), lambda turn, i: r"\boxed{2}")
    assert outcome.samples == [] and outcome.facts["right"] is None


@pytest.mark.parametrize(("field", "value"), [("agents", 0), ("turns", 0), ("discount", 1.5), ("discount", -0.1)])
def test_maporl_names_a_wrong_field(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be .* got {value}"):
        MAPoRL(**{field: value})


@pytest.mark.parametrize(
    ("rated", "pair"),
    [
        ([(1.0, "a"), (3.0, "b"), (2.0, "c")], ("b", "a")),
        ([(3.0, "a"), (3.0, "b"), (1.0, "c"), (1.0, "d")], ("a", "c")),
        ([(2.0, "a"), (2.0, "b")], None),
        ([(3.0, "a"), (1.0, "a")], None),
        ([(3.0, "a")], None),
        ([], None),
    ],
)
def test_the_best_is_preferred_to_the_worst(rated: list[tuple[float, str]], pair: tuple[str, str] | None) -> None:
    assert preference(rated) == pair


def test_srlm_averages_readable_judgements() -> None:
    steps = Steps(SRLM(candidates=3, judgements=2, world=Toy()).episode(Random(0)), Batched(lambda turns: []))
    steps.answer([r"\boxed{2}", r"\boxed{3}", r"\boxed{4}"])
    asked = [text(turn) for turn in steps.asked]
    assert asked == [rf"score<question>MATH?</question><solution>\boxed{{{n}}}</solution>" for n in (2, 2, 3, 3, 4, 4)]
    steps.answer(["<score>3</score>", "?", "<score>3</score>", "<score>1</score>", "?", "3"])  # 3, 2, unrated
    facts = steps.outcome.facts
    assert facts["pair"] == (r"\boxed{2}", r"\boxed{3}") and steps.outcome.samples == []
    assert (facts["paired"], facts["chosen_right"], facts["rejected_right"]) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("iterations", 0),
        ("questions", 0),
        ("candidates", 1),
        ("judgements", 0),
        ("dpo_batch", 0),
        ("dpo_beta", 0.0),
    ],
)
def test_srlm_names_a_wrong_field(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be .* got {value}"):
        SRLM(**{field: value})


def test_the_plain_head_gives_the_models_log_probabilities() -> None:
    model = policy_of().model
    ids = torch.tensor([[5, 6, 7, 8], [9, 5, 0, 0]])
    mask, labels = (ids > 0).long(), ids.masked_fill(torch.tensor([[1, 1, 0, 0], [1, 0, 1, 1]]).bool(), -100)
    expected = model(input_ids=ids, attention_mask=mask).logits.log_softmax(-1)
    _plain_head(model)
    out = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    assert out.log_probs[0].tolist() == pytest.approx([0, expected[0, 1, 7].item(), expected[0, 2, 8].item()])
    assert out.log_probs[1].tolist() == pytest.approx([expected[1, 0, 5].item(), 0, 0])


@pytest.mark.parametrize("adapted", [False, True])
def test_dpo_makes_the_chosen_answer_likelier(adapted: bool) -> None:
    policy = policies.load("tiny-small")
    if adapted:
        policy = attach(policy, ["shared"], (4, 8, 0.0), "tiny-small")["shared"]
    protocol = SRLM(questions=24, iterations=2, candidates=2, judgements=1, dpo_batch=8, world=Toy())
    rows = [[{"role": "assistant", "content": answer}] for answer in (r"\boxed{yes}", r"\boxed{no}")]
    pair = {"prompt": list(protocol.solver(question="MATH?").messages), "chosen": rows[0], "rejected": rows[1]}
    protocol.pairs = lambda policy, run, iteration: [pair] * 24
    before = margin(policy, protocol)
    run = config.build("srlm", "smoke", out=".", overrides={"learning_rate": 2e-2 if adapted else 1e-3})
    assert protocol.fit(policy, run) == 2 * 24 / 8
    assert margin(policy, protocol) > before + 1
    assert policy.generate([protocol.solver(question="1+1")], 0.0, 8)[0].text, "the policy still speaks"


def margin(policy: object, protocol: SRLM) -> float:
    from coevolve.losses import selective_logprobs

    prompt = policy.render(protocol.solver(question="MATH?").messages)
    rows = [(prompt, policy.tokenizer(answer).input_ids) for answer in (r"\boxed{yes}", r"\boxed{no}")]
    with torch.no_grad():
        states = [policy.states([row]) for row in rows]
        good, bad = (selective_logprobs(hidden, policy.head_VH, targets).sum().item() for hidden, targets in states)
    return good - bad


def test_self_graded_pairs_of_the_tiny_backbone_are_mostly_right() -> None:
    policy, protocol = policies.load("tiny"), SRLM(questions=40)
    run = config.build("srlm", "quick", out=".")
    rows = protocol.pairs(policy, run, 1)
    assert 10 < len(rows) <= 40 and rows == protocol.pairs(policy, run, 1)
    engine = Batched(partial(policy.generate, temperature=1.0, max_tokens=64))
    outcomes = play([protocol.episode(Random(i)) for i in range(40)], engine, (0, 1))
    chosen = [o.facts["chosen_right"] for o in outcomes if o.facts["paired"]]
    rejected = [o.facts["rejected_right"] for o in outcomes if o.facts["paired"]]
    assert sum(chosen) / len(chosen) > 0.6 > 0.2 > sum(rejected) / len(rejected)
