"""The inputs of `benchmarks/authors.py`: 1,000 replies, groups of votes, and groups of rewards.

Replies are written here by a seeded generator, in every form and malformation that a reader may
meet; 100 are what the embedded model said (`spoken.json`). Nothing is taken from anybody's
prompts or code. `python -m benchmarks.released.replies` records the embedded model anew.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

SPOKEN = Path(__file__).with_name("spoken.json")
REPLIES = 1000
SEED = 2025

# What stands between the tags of each kind of reply.
CONTENTS = {
    "score": (
        *(str(score) for score in range(1, 11)),
        *("7.5", "8.0", "0", "11", "100", "-3", "007", "+6", "1e1"),
        *("7/10", "9/2", "5/0", "8 out of 10", "8/10, no: 6", "between 4 and 6"),
        *("seven", "X", "excellent", "**9**", "9.", "9!", "Score: 9", "９", "", " "),
        *("...", "[Your score]", "10 10", "3, as 4 of 5 steps are wrong"),
    ),
    "question": (
        *("What is 12+30?", "3x+5=20 x?", "Mia has 12. Gets 5. Has?"),
        *("Name the largest prime below 50.", "A) 3 or B) 4?", "Is 7 < 9?"),
        *("Which is odd:\n4\n7\n8", "2 + <b>3</b>?", "[Your question]", "...", "", " "),
    ),
    "answer": (
        *("42", "-7", "3.50", "1/2", "\\frac{1}{2}", "x+3", "yes", "No.", "B", "(B) 4"),
        *("12 cm", "1,200", "2 or 3", "x > 2 or x < 1", "\\boxed{42}", "$42$"),
        *("the Nile", "def f(x):\n    return x", "[Your answer]", "...", "", " "),
    ),
    "boxed": (
        *("42", "-7", "3.50", "1/2", "\\frac{1}{2}", "\\frac12", "\\sqrt{2}", "x^{2}"),
        *("\\text{yes}", "B", "12\\text{ cm}", "1,200", "50\\%", "\\$5", "(1, 2)"),
        *("2 or 3", "x > 2 \\text{ or } x < 1", "\\{1, 2\\}", "seven", "...", "", " "),
    ),
}
THOUGHTS = (
    "First I add, then I check.",
    "It has 3 steps and 2 of them are right.",
    "The tag <score> comes later.",
    "Perhaps <answer>1</answer>? No.",
    "A <question>draft</question> is not enough.",
    "Maybe \\boxed{1}, but that is too small.",
    "",
)
# How the content is wrapped; {0} stands for it, {1} for another content, {t} for the tag.
TAGGED = (
    *("<{t}>{0}</{t}>",) * 8,
    *("<{t}>\n{0}\n</{t}>",) * 3,
    "Here it is: <{t}>{0}</{t}> Done.",
    "<{t}>{0}</{t}> and <{t}>{1}</{t}>",
    "<{t}>{0}</{t}>\n<{t}>{0}</{t}>",
    "<{t}>{1}</{t}><{t}>{1}</{t}><{t}>{0}</{t}>",
    "<{t}>{1}</{t}><{t}>{1}</{t}><{t}>{0}</{t}><{t}>{0}</{t}>",
    "<{t}><{t}>{0}</{t}></{t}>",
    "<{t}>{0}<{t}>{1}</{t}>",
    "<{t}>{0}",
    "{0}</{t}>",
    "</{t}>{0}<{t}>",
    "<{t}>{0}<{t}>",
    "<{t}>{0}</{t}",
    "<{T}>{0}</{T}>",
    "< {t} >{0}</ {t} >",
    "<{t} id=1>{0}</{t}>",
    "```\n<{t}>{0}</{t}>\n```",
    "```python\n{0}\n```",
    "{0}",
    "The final {t} is {0}.",
    "<{t}>{0}</{t}><answer>{1}</answer>",
    "<question>{1}</question><{t}>{0}</{t}>",
    "<{t}>{0}</{t}><type>math</type>",
    "<{t}>{0}</{t}><answer>a</answer><answer>b</answer>",
    "",
)
BOXED = (
    *("\\boxed{{{0}}}",) * 8,
    *("The answer is $\\boxed{{{0}}}$.",) * 3,
    "So x = {1}.\n\\[\\boxed{{{0}}}\\]",
    "\\boxed{{{1}}} at first, then \\boxed{{{0}}}",
    "\\boxed{{{0}}}\nCheck: {1}",
    "\\boxed{{ {0} }}",
    "\\boxed{{\\boxed{{{0}}}}}",
    "\\boxed{{{0}",
    "\\boxed {0}",
    "$\\boxed {0}$",
    "\\fbox{{{0}}}",
    "\\boxed",
    "boxed{{{0}}}",
    "<answer>{0}</answer>",
    "<answer>\\boxed{{{0}}}</answer>",
    "The answer is {0}.",
    "the final answer is ${0}$. I hope it is correct.",
    "ANSWER: {0}",
    "```python\n{0}\n```",
    "{0}",
    "It is {1} + 1 = {0}",
    "",
)
# What stands before a reply: nothing, a thought, or a thought that is cut off.
OPENINGS = (
    *("",) * 4,
    *("<think>{}</think>\n",) * 4,
    *("<think>{}</think>",) * 2,
    "<think>{}\n",
    "{}</think>\n",
    "{}\n",
)


@dataclass(frozen=True)
class Reply:
    """A recorded reply; `kind` is the tag that it was meant to have."""

    kind: str
    text: str
    is_spoken: bool  # by the embedded model


def replies() -> list[Reply]:
    """Return the 1,000 replies: a quarter of each kind, 100 of them said by a model."""
    recorded = []
    for kind, spoken in spoken_texts().items():
        count = REPLIES // len(CONTENTS) - len(spoken)
        rng = Random(f"{SEED} {kind}")
        recorded += [Reply(kind, text, is_spoken=True) for text in spoken]
        for _ in range(count):
            recorded.append(Reply(kind, written(rng, kind), is_spoken=False))
    return recorded


def spoken_texts() -> dict[str, list[str]]:
    """Return what the embedded model said, by kind."""
    spoken: dict[str, list[str]] = json.loads(SPOKEN.read_text(encoding="utf-8"))
    return spoken


def written(rng: Random, kind: str) -> str:
    """Write one reply of a kind."""
    contents = CONTENTS[kind]
    content = rng.choice(contents)
    other = rng.choice(contents)
    form = rng.choice(BOXED if kind == "boxed" else TAGGED)
    body = form.format(content, other, t=kind, T=kind.upper())
    opening = rng.choice(OPENINGS).format(rng.choice(THOUGHTS))
    return opening + body


def judgement(rng: Random) -> str:
    """Return a judgement; one in ten is in any form."""
    if rng.random() < 1 / 10:
        return written(rng, "score")
    return f"<think>{THOUGHTS[0]}</think><score>{rng.randint(1, 10)}</score>"


# Groups of answers that vote.

SPELLINGS = (
    ("7", "7.0", "07", " 7 ", "7.", "\\text{7}", "$7$", "seven"),
    ("1/2", "0.5", "\\frac{1}{2}", "\\frac12", "\\dfrac{1}{2}", "0.50", ".5"),
    ("12", "12\\text{ cm}", "12 cm", "12.0", "twelve"),
    ("1200", "1,200", "1200.0", "1{,}200"),
    ("x+3", "3+x", "x + 3"),
    ("(1, 2)", "(1,2)", "1, 2"),
    ("B", "\\text{B}", "(B)", "b"),
    ("yes", "Yes", "\\text{yes}", "no doubt, yes"),
    ("no", "No", "no way"),
    ("",),
)
GROUP_SIZES = (1, 2, 4, 5, 8, 10, 16, 64)


def vote_groups(count: int) -> list[list[str]]:
    """Return groups of boxed replies to one question, from few answers in several spellings."""
    rng = Random(f"{SEED} votes")
    groups = []
    for _ in range(count):
        size = rng.choice(GROUP_SIZES)
        answers = rng.sample(SPELLINGS, rng.randint(1, 3))
        spells = rng.choice((one_spelling, any_spelling))
        groups.append([vote(rng, answers, spells) for _ in range(size)])
    return groups


def one_spelling(rng: Random, spellings: Sequence[str]) -> str:
    """Return the first spelling of an answer."""
    return spellings[0]


def any_spelling(rng: Random, spellings: Sequence[str]) -> str:
    """Return any spelling of an answer."""
    return rng.choice(spellings)


def vote(
    rng: Random,
    answers: Sequence[Sequence[str]],
    spells: Callable[[Random, Sequence[str]], str],
) -> str:
    """Return one reply of a group; one in twelve has no box."""
    answer = spells(rng, rng.choice(answers))
    if rng.random() < 1 / 12:
        return rng.choice(("", "I cannot tell.", f"It may be {answer}."))
    return f"<think>{rng.choice(THOUGHTS[:2])}</think> So \\boxed{{{answer}}}"


# Groups of questions that may repeat each other.

NAMES = ("Mia", "Tom", "Ana")
QUESTION_FORMS = (
    "{name} has {a} apples and gets {b} more. How many apples does {name} have now?",
    "What is the sum of the first {a} odd numbers plus {b}?",
    "Solve for x: {a}x + {b} = {c}. Give x as a fraction in lowest terms.",
    "A train drives {a} km in {b} hours. What is its speed in km per hour?",
    "{a}+{b}=?",
    "Is {a} prime?",
)


def question_groups(count: int) -> list[list[str]]:
    """Return groups of questions, some alike, some empty (a proposal that does not parse)."""
    rng = Random(f"{SEED} questions")
    groups = []
    for _ in range(count):
        forms = rng.sample(QUESTION_FORMS, rng.randint(1, len(QUESTION_FORMS)))
        size = rng.choice((2, 4, 5, 8, 16))
        groups.append([proposed(rng, forms) for _ in range(size)])
    return groups


def proposed(rng: Random, forms: Sequence[str]) -> str:
    """Return a question; one in eight is empty."""
    if rng.random() < 1 / 8:
        return ""
    numbers = {name: rng.randint(2, 40) for name in "abc"}
    return rng.choice(forms).format(name=rng.choice(NAMES), **numbers)


# Groups of rewards.


@dataclass(frozen=True)
class Batch:
    """The rewards of one role's batch, the lengths of its completions, and their groups."""

    rewards: list[float]
    lengths: list[int]  # in tokens
    groups: list[int]


REWARD_LEVELS = (
    (0.0, 1.0),
    (-1.0, -0.5, 1.0),
    (0.0, 0.5, 1.0),
    tuple(step / 27 for step in range(28)),
)


def batches(count: int) -> list[Batch]:
    """Return batches of rewards; in one of five all rewards are equal."""
    rng = Random(f"{SEED} rewards")
    drawn = []
    for _ in range(count):
        size = rng.choice((2, 4, 5, 8, 32))
        levels = rng.choice(REWARD_LEVELS)
        if rng.random() < 1 / 5:
            levels = (rng.choice(levels),)
        groups = [group for group in range(rng.randint(1, 4)) for _ in range(size)]
        rewards = [rng.choice(levels) for _ in groups]
        lengths = [rng.randint(1, 40) for _ in groups]
        drawn.append(Batch(rewards, lengths, groups))
    return drawn


def record() -> None:
    """Write down what the embedded model says in episodes of MAE, and the answers as boxes."""
    from coevolve import EpisodeStepper
    from coevolve.engines.loading import load_policy
    from coevolve.methods.mae import MAE

    engine = load_policy("tiny").serve(temperature=1.0, max_tokens=64)
    tag_of = {"judge": "score", "proposer": "question", "solver": "answer"}
    spoken: dict[str, list[str]] = {kind: [] for kind in CONTENTS}
    for seed in range(60):
        episode = MAE().observed(Random(seed))
        stepper = EpisodeStepper(episode, engine, key=(seed, 0))
        while stepper.pending_turns:
            for reply in next(stepper):
                spoken[tag_of[reply.turn.role]].append(reply.text)
    for text in spoken["answer"]:
        spoken["boxed"].append(as_box(text))
    kept = {kind: distinct(texts)[:25] for kind, texts in spoken.items()}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    SPOKEN.write_text(text + "\n", encoding="utf-8")


def as_box(text: str) -> str:
    """Return an answer in tags as a boxed one."""
    return text.replace("<answer>", "\\boxed{").replace("</answer>", "}")


def distinct(texts: Sequence[str]) -> list[str]:
    """Return the different texts in order."""
    return list(dict.fromkeys(texts))


if __name__ == "__main__":
    record()
