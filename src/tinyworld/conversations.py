"""Demonstrations of the roles that talk to each other: CoMAS's discussion, CoNL's four rounds."""

from dataclasses import dataclass
from typing import Any

from coevolve.text import blocks
from tinyworld import tasks
from tinyworld.demonstrator import (
    JUDGE_SKILL,
    Demonstrator,
    Example,
    Skill,
    draw_answer,
    draw_claim,
    draw_task,
    work_out,
    write_solution,
    write_verdict,
)
from tinyworld.tasks import Task

PERSONAS = (
    "analyst",
    "creator",
    "critic",
    "synthesizer",
    "verifier",
    "planner",
    "tester",
    "builder",
)
CRITIC_SKILL: Skill = {1: 0.9, 2: 0.8, 3: 0.7}
# Of solvers who have read a discussion.
INFORMED_SKILL: Skill = {
    1: 0.95,
    2: 0.85,
    3: 0.75,
}
DEFENCE_RATE = 0.95  # of correct solutions: kept in the revision
CORRECTION_RATE = 0.5  # of wrong solutions: corrected if a critic is correct
FOOLED_RATE = 0.2  # of evaluations: contradict the truth
MISRANKED_RATE = 0.1  # of comparisons: written with the wrong mark
APPROVAL_SCORES = (3, 3, 3, 3, 2)  # of CoMAS
DISAPPROVAL_SCORES = (1, 1, 1, 1, 2)
AGENT_COUNTS = (2, 3, 3, 4, 4, 4, 4, 5, 8)  # of a conversation
EARLIER_ROUNDS = (0, 0, 1, 2)  # of a discussion
CRITIC_COUNTS = (0, 1, 1, 2, 2, 3)  # of one solution


# CoMAS


def write_evaluation(task: Task, evaluator_answer: str, answer: str) -> str:
    """Write an evaluator's own answer, and whether `answer` equals it."""
    word = "right" if evaluator_answer == answer else "wrong"
    return f"{work_out(task, evaluator_answer)}: {word}"


def discussion(rng: Demonstrator, task: Task) -> str:
    """Write zero to two earlier rounds of a discussion."""
    rounds = []
    for _ in range(rng.choice(EARLIER_ROUNDS)):
        answer = draw_claim(rng, task)
        evaluator_answer = draw_answer(rng, task, JUDGE_SKILL)
        text = write_evaluation(task, evaluator_answer, answer)
        rounds.append((f"\\boxed{{{answer}}}", [text]))
    return blocks.discussion(rounds)


def solution(rng: Demonstrator) -> Example:
    """CoMAS: solve, given the discussion."""
    task = draw_task(rng, choice=True)
    earlier = discussion(rng, task)
    skill = INFORMED_SKILL if earlier else None
    fields = {"problem": task.question, "discussion": earlier}
    return Example(fields, write_solution(rng, task, "\\boxed{{{}}}", skill))


@dataclass(frozen=True)
class Evaluated:
    """A solution to evaluate: its task and answer, the evaluator's answer, the prompt's fields."""

    task: Task
    answer: str
    evaluator_answer: str
    fields: dict[str, Any]


def _draw_evaluated(rng: Demonstrator) -> Evaluated:
    task = draw_task(rng, choice=True)
    answer = draw_claim(rng, task)
    evaluator_answer = draw_answer(rng, task, JUDGE_SKILL)
    fields = {
        "problem": task.question,
        "discussion": discussion(rng, task),
        "solution": f"\\boxed{{{answer}}}",
    }
    return Evaluated(task, answer, evaluator_answer, fields)


def evaluation(rng: Demonstrator) -> Example:
    """CoMAS: evaluate a solution."""
    shown = _draw_evaluated(rng)
    text = write_evaluation(shown.task, shown.evaluator_answer, shown.answer)
    return Example(shown.fields, text)


def judgment(rng: Demonstrator) -> Example:
    """CoMAS, the ablation without scoring: evaluate a solution and end in a judgment."""
    shown = _draw_evaluated(rng)
    verdict = "correct" if shown.evaluator_answer == shown.answer else "incorrect"
    steps = work_out(shown.task, shown.evaluator_answer)
    return Example(shown.fields, f"{steps}: <judgment>{verdict}</judgment>")


def scoring(rng: Demonstrator) -> Example:
    """CoMAS: score a solution, given an evaluation.

    A fifth of the evaluations contradict the truth, so that the scorer learns to check them.
    """
    task = draw_task(rng, choice=True)
    answer = draw_claim(rng, task)
    is_fooled = rng.random() < FOOLED_RATE
    evaluator_answer = tasks.wrong(rng, task) if is_fooled else task.answer
    fields = {
        "problem": task.question,
        "solution": f"\\boxed{{{answer}}}",
        "evaluation": write_evaluation(task, evaluator_answer, answer),
    }
    return Example(fields, _write_score(rng, task, answer))


def scoring_alone(rng: Demonstrator) -> Example:
    """CoMAS, the ablation without evaluations: score a solution."""
    task = draw_task(rng, choice=True)
    answer = draw_claim(rng, task)
    fields = {"problem": task.question, "solution": f"\\boxed{{{answer}}}"}
    return Example(fields, _write_score(rng, task, answer))


def _write_score(rng: Demonstrator, task: Task, answer: str) -> str:
    return write_verdict(rng, task, answer, APPROVAL_SCORES, DISAPPROVAL_SCORES)


# CoNL


@dataclass(frozen=True)
class Panel:
    """The answers of all agents to a task, and the judge, one of the agents, who ranks them."""

    task: Task
    answers: list[str]  # by agent
    judge_answer: str
    candidates: list[int]  # the agents to rank
    judge: int

    def accepts(self, agent: int) -> bool:
        """Whether an agent's answer equals the judge's."""
        return self.answers[agent] == self.judge_answer


def draw_panel(rng: Demonstrator) -> Panel:
    """Draw a task, the answers of the agents, and the judge."""
    task = draw_task(rng, choice=True)
    count = rng.choice(AGENT_COUNTS)
    answers = [draw_claim(rng, task) for _ in range(count)]
    judge = rng.randrange(count)
    # The only pair of two agents includes the judge.
    candidates = [agent for agent in range(count) if count == 2 or agent != judge]
    judge_answer = draw_answer(rng, task, JUDGE_SKILL)
    return Panel(task, answers, judge_answer, candidates, judge)


def judge_fields(panel: Panel, persona: str) -> dict[str, Any]:
    """Return the fields of a judge's prompt."""
    texts = [f"ANSWER: {answer}" for answer in panel.answers]
    return {
        "persona": persona,
        "agent": panel.judge,
        "query": panel.task.question,
        "solutions": blocks.solutions(texts),
    }


def write_ranking(rng: Demonstrator, panel: Panel) -> str:
    """Compare every candidate with an accepted one, one line each; some marks are wrong."""
    accepted = [agent for agent in panel.candidates if panel.accepts(agent)]
    best = rng.choice(accepted or panel.candidates)
    lines = []
    for agent in panel.candidates:
        best_wins = bool(accepted) and not panel.accepts(agent)
        is_misranked = rng.random() < MISRANKED_RATE
        mark = ">" if best_wins != is_misranked else "="
        if agent != best:
            lines.append(f"Agent {best} {mark} Agent {agent}")
    return "\n".join(lines)


def _write_acceptance(panel: Panel, agent: int) -> str:
    word = "right" if panel.accepts(agent) else "wrong"
    return f"Agent {agent} ANSWER: {panel.answers[agent]} {word}"


def _rank(rng: Demonstrator, tag: str, panel: Panel) -> Example:
    """Demonstrate a ranking: the judge's own answer, who agrees with it, the ranking in a tag."""
    steps = [work_out(panel.task, panel.judge_answer)]
    steps += [_write_acceptance(panel, agent) for agent in panel.candidates]
    thought = "\n".join(steps)
    fields = judge_fields(panel, rng.choice(PERSONAS))
    ranking = write_ranking(rng, panel)
    return Example(fields, f"<think>{thought}</think><{tag}>{ranking}</{tag}>")


def proposal(rng: Demonstrator) -> Example:
    """CoNL, round 0: solve."""
    task = draw_task(rng, choice=True)
    follows_thought = task.family == tasks.CHOICE
    template = "\nANSWER: {}" if follows_thought else "ANSWER: {}"
    fields = {"persona": rng.choice(PERSONAS), "query": task.question}
    return Example(fields, write_solution(rng, task, template))


def review(rng: Demonstrator) -> Example:
    """CoNL, round 1: rank the others and criticise up to two of them."""
    panel = draw_panel(rng)
    peers = [agent for agent in panel.candidates if agent != panel.judge]
    rejected = [agent for agent in peers if not panel.accepts(agent)]
    points = {agent: f"it is {panel.judge_answer}" for agent in rejected[:2]}
    if not points:
        points = {peers[0]: "right"}
    fields, text = _rank(rng, "initial_ranking", panel)
    for agent, point in points.items():
        text += f'<critique target="Agent {agent}">{point}</critique>'
    return Example(fields, text)


def revision(rng: Demonstrator) -> Example:
    """CoNL, round 2: revise a solution, given critiques.

    A correct solution is mostly kept; a wrong one may be corrected if a critic knows better.
    """
    task = draw_task(rng, choice=True)
    answer = draw_claim(rng, task)
    critic_answers = []
    for _ in range(rng.choice(CRITIC_COUNTS)):
        critic_answers.append(draw_answer(rng, task, CRITIC_SKILL))
    revised = _revise(rng, task, answer, critic_answers)
    critiques = []
    for critic_answer in critic_answers:
        critiques.append(
            "right" if critic_answer == answer else f"it is {critic_answer}"
        )
    fields = {
        "persona": rng.choice(PERSONAS),
        "query": task.question,
        "solution": f"ANSWER: {answer}",
        "critiques": blocks.critiques(critiques),
    }
    return Example(fields, f"<revised_solution>ANSWER: {revised}</revised_solution>")


def _revise(
    rng: Demonstrator, task: Task, answer: str, critic_answers: list[str]
) -> str:
    # Each condition draws a number only where it applies: the order of draws is fixed.
    if answer == task.answer and rng.random() >= DEFENCE_RATE:
        return task.misconception
    if task.answer in critic_answers and rng.random() < CORRECTION_RATE:
        return task.answer
    return answer


def verdict(rng: Demonstrator) -> Example:
    """CoNL, round 3: the final ranking."""
    return _rank(rng, "final_ranking", draw_panel(rng))


def compress_solution(rng: Demonstrator) -> Example:
    """CoNL, memory buffer: keep the answer line of a solution."""
    answer = draw_claim(rng, draw_task(rng, choice=True))
    text = f"ANSWER: {answer}"
    return Example({"solution": text}, text)


def compress_critique(rng: Demonstrator) -> Example:
    """CoNL, memory buffer: keep the point of a critique."""
    answer = draw_claim(rng, draw_task(rng, choice=True))
    text = f"it is {answer}"
    return Example({"critique": text}, text)
