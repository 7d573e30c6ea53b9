"""The authors' released code beside ours, on the same inputs.

`python -m benchmarks.authors SNAPSHOTS` runs reward functions, readers and advantage estimators of
MAE, Absolute Zero, TTRL and R-Zero from git directories SNAPSHOTS/owner+name/repo, and ours, on
1,000 replies (`released/replies.py`). The default is a folder `snapshots` here. None of their code
is in this repository, and nothing here fetches it. Prints a table and writes authors.json, which a
test compares with our side alone.

Every difference has a cause (`released/causes.py`); one without a cause ends the run with status 1.
Without all snapshots the run compares what it can and writes nothing.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.released import ours as ours_side
from benchmarks.released import replies as recorded
from benchmarks.released import tables
from benchmarks.released import theirs as released
from benchmarks.released.causes import Cause, close, general_causes
from benchmarks.released.code import Snapshot
from benchmarks.released.vote_causes import rzero_causes, ttrl_causes

RESULTS = Path(__file__).with_suffix(".json")
Snapshots = dict[str, Snapshot]
Case = dict[str, Any]
Texts = list[str]
Counts = dict[str, int]
GROUPS = 100  # of votes, and of questions
BATCHES = 200  # of rewards
SAMPLES = 10  # inputs of each comparison that the results keep, besides the examples
UNEXPLAINED = "unexplained"
# The kind of replies that a comparison is about; the other kinds are malformed to its readers.
KINDS = {
    "MAE score": "score",
    "MAE format of score": "score",
    "MAE question": "question",
    "MAE format of question": "question",
    "MAE Proposer": "question",
    "MAE format of answer": "answer",
    "MAE Solver": "answer",
    "AZR format": "answer",
    "AZR answer": "answer",
    "AZR Solver": "answer",
    "TTRL answer": "boxed",
    "R-Zero Solver": "boxed",
}


@dataclass
class Comparison:
    """One pair of functions: where theirs stands, and what they return for the inputs."""

    name: str
    snapshot: Snapshot
    function: str  # file:name
    inputs: list
    theirs: list
    causes: Sequence[Cause]


@dataclass(frozen=True)
class Inputs:
    """What all functions are given: 1,000 replies, and what is composed of them."""

    texts: Texts
    proposals: list[Case]
    answers: list[Case]
    tasks: list[Case]
    votes: list[Texts]
    questions: list[Texts]
    challenges: list[Case]
    batches: list[recorded.Batch]


def inputs_of_all() -> Inputs:
    """Return the inputs, which a seed determines."""
    rng = Random(recorded.SEED)
    texts = [reply.text for reply in recorded.replies()]
    proposals = []
    answers = []
    for text in texts:
        attempts = [recorded.judgement(rng) for _ in range(ours_side.ATTEMPTS)]
        quality = recorded.judgement(rng)
        proposals.append({"proposal": text, "quality": quality, "attempts": attempts})
        answers.append({"answer": text, "judgement": recorded.judgement(rng)})
    questions = recorded.question_groups(GROUPS)
    challenges = []
    for group in questions:
        agreements = [rng.randint(1, 5) / 5 for _ in group]
        challenges.append({"questions": group, "agreements": agreements})
    filled = [list(filter(None, group)) for group in questions]
    return Inputs(
        texts=texts,
        proposals=proposals,
        answers=answers,
        tasks=tasks(),
        votes=recorded.vote_groups(GROUPS),
        questions=[group for group in filled if group],
        challenges=challenges,
        batches=recorded.batches(BATCHES),
    )


def tasks() -> list[Case]:
    """Return every kind of task of Absolute Zero: of each solve rate, invalid, ill-formed."""
    valid = {"is_well_formed": True, "is_valid": True}
    all_tasks = [{**valid, "solved": solved} for solved in range(ours_side.TRIES + 1)]
    all_tasks.append({"is_well_formed": True, "is_valid": False, "solved": 0})
    all_tasks.append({"is_well_formed": False, "is_valid": True, "solved": 0})
    return all_tasks


def task_text(task: Case) -> str:
    """Write a task in the form that the released code of Absolute Zero reads."""
    word = "return" if task["is_valid"] else "invalid"
    end_of_thought = "</think>" if task["is_well_formed"] else ""
    program = f"```python\ndef f(x):\n    {word} x\n```\n```input\n1\n```"
    return f"A thought.{end_of_thought}\n<answer>{program}</answer>"


class Compared(list[Comparison]):
    """The comparisons with one repository."""

    def __init__(self, snapshot: Snapshot, causes: Mapping[str, list[Cause]]) -> None:
        super().__init__()
        self.snapshot = snapshot
        self.causes = causes

    def with_function(
        self, name: str, function: str, inputs: Sequence, theirs: Sequence
    ) -> None:
        """Add a comparison; functions of MAE are compared with both of our variants."""
        names = [name]
        if name.startswith("MAE"):
            names = [f"{name}, {variant}" for variant in ours_side.VARIANTS]
        for full_name in names:
            comparison = Comparison(
                full_name,
                self.snapshot,
                function,
                list(inputs),
                list(theirs),
                self.causes.get(full_name, ()),
            )
            self.append(comparison)


def of_mae(found: Snapshots, inputs: Inputs) -> Compared:
    """Compare with MAE: readers, format rewards, the rewards of Proposer and Solver."""
    code = released.ReleasedMAE(found[released.MAE])
    manager = f"{released.REWARD_MANAGERS}:GeneralIORewardManager"
    reader = f"{manager}.extract_score_from_tags"
    formats = f"{manager}.calc_format_reward"
    call = f"{manager}.__call__"
    texts = inputs.texts
    compared = Compared(found[released.MAE], general_causes())
    compared.with_function("MAE score", reader, texts, code.scores(texts))
    compared.with_function("MAE question", call, texts, code.questions(texts))
    for name, role in (("question", "gen"), ("answer", "pred"), ("score", "judge")):
        rewards = code.formats(role, texts)
        compared.with_function(f"MAE format of {name}", formats, texts, rewards)
    rewards = code.proposal_rewards(inputs.proposals)
    compared.with_function("MAE Proposer", call, inputs.proposals, rewards)
    rewards = code.solver_rewards(inputs.answers)
    compared.with_function("MAE Solver", call, inputs.answers, rewards)
    return compared


def of_azr(found: Snapshots, inputs: Inputs) -> Compared:
    """Compare with Absolute Zero: form and answer, the rewards of Proposer and Solver."""
    code = released.ReleasedAZR(found[released.AZR])
    form = f"{released.CUSTOM_EVALUATE}:get_format_reward"
    answer = f"{released.CUSTOM_EVALUATE}:extract_answer"
    call = f"{released.REWARD_MANAGERS}:CodeIORewardManager.__call__"
    texts = inputs.texts
    compared = Compared(found[released.AZR], general_causes())
    compared.with_function("AZR format", form, texts, code.formats(texts))
    compared.with_function("AZR answer", answer, texts, code.answers(texts))
    compared.with_function("AZR Solver", call, texts, code.solver_rewards(texts))
    proposals = [task_text(task) for task in inputs.tasks]
    solved = [task["solved"] for task in inputs.tasks]
    rewards = code.proposal_rewards(proposals, solved, ours_side.TRIES)
    compared.with_function("AZR Proposer", call, inputs.tasks, rewards)
    return compared


def of_ttrl(found: Snapshots, inputs: Inputs) -> Compared:
    """Compare with TTRL: extraction and vote, and the advantages of its copy of verl."""
    code = released.ReleasedTTRL(found[released.TTRL])
    parser = f"{released.TTRL_SCORES}/qwen/qwen_math_parser.py:extract_answer"
    metrics = f"{released.TTRL_SCORES}/ttt_metrics.py:test_time_train_metrics"
    algorithms = released.TTRL_ALGORITHMS
    grpo = f"{algorithms}:compute_grpo_outcome_advantage"
    reinforce = f"{algorithms}:compute_reinforce_plus_plus_outcome_advantage"
    causes = {**general_causes(), **ttrl_causes(code)}
    compared = Compared(found[released.TTRL], causes)
    answers = code.answers(inputs.texts)
    compared.with_function("TTRL answer", parser, inputs.texts, answers)
    rewards = [code.rewards(group) for group in inputs.votes]
    compared.with_function("TTRL reward", metrics, inputs.votes, rewards)
    batches = [asdict(batch) for batch in inputs.batches]
    advantages = [code.reinforce(batch) for batch in inputs.batches]
    for estimator in ("task_relative", "reinforce_pp_by_role"):
        name = f"REINFORCE++, {estimator}"
        compared.with_function(name, reinforce, batches, advantages)
    advantages = [code.grpo(batch) for batch in inputs.batches]
    compared.with_function("GRPO of TTRL", grpo, batches, advantages)
    return compared


def of_rzero(found: Snapshots, inputs: Inputs) -> Compared:
    """Compare with R-Zero: vote, repetition, the rewards of both policies, and GRPO."""
    code = released.ReleasedRZero(found[released.RZERO], found[released.NLTK])
    causes = {**general_causes(), **rzero_causes(code)}
    compared = Compared(found[released.RZERO], causes)
    vote = f"{released.SERVER}:hello.process_single"
    agreements = [code.agreement(group) for group in inputs.votes]
    compared.with_function("R-Zero vote", vote, inputs.votes, agreements)
    share = f"{released.CALLER}:cluster_share_per_problem"
    penalties = [code.penalties(group) for group in inputs.questions]
    compared.with_function("R-Zero repetition", share, inputs.questions, penalties)
    challenger = f"{released.CALLER}:compute_score"
    rewards = []
    for case in inputs.challenges:
        rewards.append(code.challenger_rewards(case["questions"], case["agreements"]))
    compared.with_function("R-Zero Challenger", challenger, inputs.challenges, rewards)
    solver = f"{released.RZERO_MATH}:compute_score"
    rewards = code.solver_rewards(inputs.texts, ours_side.GOLD)
    compared.with_function("R-Zero Solver", solver, inputs.texts, rewards)
    grpo = f"{released.RZERO_ALGORITHMS}:compute_grpo_outcome_advantage"
    batches = [asdict(batch) for batch in inputs.batches]
    advantages = [code.grpo(batch) for batch in inputs.batches]
    compared.with_function("GRPO of R-Zero", grpo, batches, advantages)
    return compared


# Each part, and the snapshots that it needs: the authors' own, and those of packages.
PARTS: dict[Callable[[Snapshots, Inputs], Compared], tuple[str, ...]] = {
    of_mae: (released.MAE,),
    of_azr: (released.AZR,),
    of_ttrl: (released.TTRL, released.PYLATEXENC, released.W2N),
    of_rzero: (
        released.RZERO,
        released.MATHRULER,
        released.PYLATEXENC,
        released.NLTK,
    ),
}


def judged(comparison: Comparison, ours_of: Callable[[Any], Any]) -> Case:
    """Return the counts of one comparison, its classes of differences and inputs to keep."""
    values = [ours_of(given) for given in comparison.inputs]
    pairs = list(zip(values, comparison.theirs, strict=True))
    equal = [close(ours, theirs) for ours, theirs in pairs]
    differences: dict[str, Case] = {}
    sample = []
    every = max(1, len(values) // SAMPLES)
    for i, given in enumerate(comparison.inputs):
        ours, theirs = pairs[i]
        if i % every == 0:
            sample.append({"input": given, "ours": ours})
        if not equal[i]:
            example = {"input": given, "ours": ours, "theirs": theirs}
            count(differences, cause_of(comparison, example), example)
    return {
        "repository": comparison.snapshot.repository,
        "commit": comparison.snapshot.commit,
        "function": comparison.function,
        "inputs": len(values),
        "equal": sum(equal),
        **of_its_kind(comparison.name, equal),
        "differences": differences,
        "sample": sample,
    }


def of_its_kind(name: str, equal: Sequence[bool]) -> dict[str, Counts]:
    """Return the counts of equal replies of the comparison's kind, and of those that a model said.

    {} where inputs are no replies.
    """
    kind = KINDS.get(name.split(",")[0])
    if kind is None:
        return {}
    own = []
    spoken = []
    for reply, is_equal in zip(recorded.replies(), equal, strict=True):
        if reply.kind == kind:
            own.append(is_equal)
            if reply.is_spoken:
                spoken.append(is_equal)
    return {
        "own_kind": {"inputs": len(own), "equal": sum(own)},
        "spoken": {"inputs": len(spoken), "equal": sum(spoken)},
    }


def cause_of(comparison: Comparison, example: Case) -> Cause:
    """Return the first cause that applies to a difference."""
    for cause in comparison.causes:
        if cause.applies(example["input"], example["ours"], example["theirs"]):
            return cause
    return Cause(UNEXPLAINED, "", applies=lambda *_: True)


def count(differences: dict[str, Case], cause: Cause, example: Case) -> None:
    """Count a difference, and keep the shortest example of its cause."""
    first = {"count": 0, "cause": cause.text, "example": example}
    found = differences.setdefault(cause.name, first)
    found["count"] += 1
    if len(json.dumps(example)) < len(json.dumps(found["example"])):
        found["example"] = example


def fingerprint(texts: Sequence[str]) -> str:
    """Return a hash of the replies, so that a change of the inputs is noticed."""
    written = json.dumps(list(texts))
    return hashlib.sha256(written.encode()).hexdigest()


def compare(found: Snapshots) -> Case:
    """Run the comparisons whose snapshots are there, and name those that are skipped."""
    for repository, package in released.PACKAGES.items():
        if repository in found:
            found[repository].package(package)
    inputs = inputs_of_all()
    ours = ours_side.by_comparison()
    results = {}
    for part, needed in PARTS.items():
        absent = [repository for repository in needed if repository not in found]
        if absent:
            print(f"skipped: {needed[0]}, no snapshot of {', '.join(absent)}")
            continue
        for comparison in part(found, inputs):
            results[comparison.name] = judged(comparison, ours[comparison.name])
    return {
        "replies": fingerprint(inputs.texts),
        "snapshots": {name: snapshot.commit for name, snapshot in found.items()},
        "comparisons": results,
    }


def laid_out(value: Any, indent: str = "") -> str:
    """Return JSON in which whatever fits into a line stands in one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) < 100 or not isinstance(value, dict | list):
        return line
    if isinstance(value, list) and not isinstance(value[0], dict):
        return line
    deeper = indent + " "
    rows = []
    if isinstance(value, list):
        opening, closing = "[]"
        for one in value:
            row = laid_out(one, deeper)
            rows.append(deeper + row)
    else:
        opening, closing = "{}"
        for key, one in value.items():
            row = laid_out(one, deeper)
            rows.append(f"{deeper}{json.dumps(key)}: {row}")
    joined = ",\n".join(rows)
    return f"{opening}\n{joined}\n{indent}{closing}"


def main() -> None:
    """Compare, print the table and write the results."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "snapshots")
    repositories = {repository for needed in PARTS.values() for repository in needed}
    with tempfile.TemporaryDirectory() as scratch:
        found = {}
        for repository in sorted(repositories):
            snapshot = Snapshot.find(repository, root, Path(scratch))
            if snapshot is not None:
                found[repository] = snapshot
        results = compare(found)
    print(tables.counts(results["comparisons"]))
    print(tables.differences(results["comparisons"]))
    if len(found) == len(repositories):
        RESULTS.write_text(laid_out(results) + "\n", encoding="utf-8")
    for name, result in results["comparisons"].items():
        if UNEXPLAINED in result["differences"]:
            sys.exit(f"{name}: differences without a known cause")


if __name__ == "__main__":
    main()
