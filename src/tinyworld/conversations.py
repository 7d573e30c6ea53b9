"""Demonstrations of the roles that talk to each other: CoMAS's discussion and CoNL's four rounds."""

from typing import Any, NamedTuple

from coevolve.text import blocks
from tinyworld import tasks
from tinyworld.demonstrator import JUDGES, Demonstrator, Pair, Skill, claim, judged, pick, say, solved, worked
from tinyworld.tasks import Task

PERSONAS = ("analyst", "creator", "critic", "synthesizer", "verifier", "planner", "tester", "builder")
CRITICS: Skill = {1: 0.9, 2: 0.8, 3: 0.7}  # how often a critic's own answer is right
INFORMED: Skill = {1: 0.95, 2: 0.85, 3: 0.75}  # of solvers who have read a discussion
DEFENCE = 0.95  # how often a right solution is kept
CORRECTION = 0.5  # how often a wrong one is put right if a critic knows better
FOOLED, MISRANKED = 0.2, 0.1  # evaluations that contradict the truth; comparisons written the wrong way
APPROVAL, DISAPPROVAL = (3, 3, 3, 3, 2), (1, 1, 1, 1, 2)  # scores of CoMAS
AGENTS = (2, 3, 3, 4, 4, 4, 4, 5, 8)  # how many agents a conversation has


def evaluation(task: Task, own: str, shown: str) -> str:
    """What an evaluator says: its own answer, and whether the shown one equals it."""
    return f"{worked(task, own)}: {'right' if own == shown else 'wrong'}"


def history(rng: Demonstrator, task: Task) -> str:
    """Zero to two earlier rounds of a discussion."""
    rounds = []
    for _ in range(rng.choice([0, 0, 1, 2])):
        shown = claim(rng, task)
        rounds.append((f"\\boxed{{{shown}}}", [evaluation(task, say(rng, task, JUDGES), shown)]))
    return blocks.discussion(rounds)


def solution(rng: Demonstrator) -> Pair:
    """CoMAS: solve, with the discussion so far."""
    task = pick(rng, choice=True)
    earlier = history(rng, task)
    fields = {"problem": task.question, "discussion": earlier}
    return fields, solved(rng, task, "\\boxed{{{}}}", INFORMED if earlier else None)


def evaluate(rng: Demonstrator, ends_in_judgment: bool = False) -> Pair:
    """CoMAS: evaluate a solution; or, on demand, in the form of the ablation without scoring."""
    task = pick(rng, choice=True)
    shown, own = claim(rng, task), say(rng, task, JUDGES)
    fields = {"problem": task.question, "discussion": history(rng, task), "solution": f"\\boxed{{{shown}}}"}
    if ends_in_judgment:
        return fields, f"{worked(task, own)}: <judgment>{'correct' if own == shown else 'incorrect'}</judgment>"
    return fields, evaluation(task, own, shown)


def scoring(rng: Demonstrator, alone: bool = False) -> Pair:
    """CoMAS: score a solution given an evaluation; `alone` is the ablation without one."""
    task = pick(rng, choice=True)
    shown = claim(rng, task)
    fields = {"problem": task.question, "solution": f"\\boxed{{{shown}}}"}
    if not alone:  # every fifth evaluation contradicts the truth: the scorer has to think for itself
        fooled = rng.random() < FOOLED
        fields["evaluation"] = evaluation(task, tasks.wrong(rng, task) if fooled else task.answer, shown)
    return fields, judged(rng, task, shown, APPROVAL, DISAPPROVAL)


def proposal(rng: Demonstrator) -> Pair:
    """CoNL, round 0: an initial solution."""
    task = pick(rng, choice=True)
    form = "\nANSWER: {}" if task.family == tasks.CHOICE else "ANSWER: {}"  # on a line of its own
    return {"persona": rng.choice(PERSONAS), "query": task.question}, solved(rng, task, form)


class Table(NamedTuple):
    """Solutions to compare, and who compares them."""

    task: Task
    answers: list[str]  # of all agents
    own: str  # the judge's own answer
    others: list[int]  # the agents to compare
    agent: int  # who the judge is

    def is_correct(self, agent: int) -> bool:
        """Whether the judge holds an agent's answer for right."""
        return self.answers[agent] == self.own


def table(rng: Demonstrator) -> Table:
    """Draw a task and what the agents answer."""
    task, count = pick(rng, choice=True), rng.choice(AGENTS)
    answers = [claim(rng, task) for _ in range(count)]
    agent = rng.randrange(count)
    others = [i for i in range(count) if count == 2 or i != agent]  # of two, the only pair includes oneself
    return Table(task, answers, say(rng, task, JUDGES), others, agent)


def ranking(rng: Demonstrator, seen: Table) -> str:
    """One comparison a line: everybody against one of the right agents; now and then the mark is wrong."""
    right = [i for i in seen.others if seen.is_correct(i)]
    best = rng.choice(right or seen.others)
    better = [bool(right) and not seen.is_correct(i) for i in seen.others]
    marks = [">" if win != (rng.random() < MISRANKED) else "=" for win in better]
    pairs = zip(seen.others, marks, strict=True)
    return "\n".join(f"Agent {best} {mark} Agent {i}" for i, mark in pairs if i != best)


def shown(seen: Table, persona: str) -> dict[str, Any]:
    """The fields of a judge's prompt."""
    solutions = blocks.solutions([f"ANSWER: {answer}" for answer in seen.answers])
    return {"persona": persona, "agent": seen.agent, "query": seen.task.question, "solutions": solutions}


def ranked(rng: Demonstrator, tag: str, seen: Table) -> Pair:
    """A judge's prompt; the ranking in the tag, behind the judge's own answer and who agrees with it."""
    marks = [f"Agent {i} ANSWER: {seen.answers[i]} {'right' if seen.is_correct(i) else 'wrong'}" for i in seen.others]
    thought = "\n".join([worked(seen.task, seen.own), *marks])
    return shown(seen, rng.choice(PERSONAS)), f"<think>{thought}</think><{tag}>{ranking(rng, seen)}</{tag}>"


def verdict(rng: Demonstrator) -> Pair:
    """CoNL, round 3: the final ranking."""
    return ranked(rng, "final_ranking", table(rng))


def review(rng: Demonstrator) -> Pair:
    """CoNL, round 1: rank the others, criticise up to two of them."""
    seen = table(rng)
    peers = [i for i in seen.others if i != seen.agent]
    wrong = [i for i in peers if not seen.is_correct(i)]
    notes = {i: f"it is {seen.own}" for i in wrong[:2]} or {peers[0]: "right"}
    fields, said = ranked(rng, "initial_ranking", seen)
    return fields, said + "".join(f'<critique target="Agent {i}">{note}</critique>' for i, note in notes.items())


def revision(rng: Demonstrator) -> Pair:
    """CoNL, round 2: defend a right solution against critics who err; correct a wrong one if somebody knows better."""
    task = pick(rng, choice=True)
    shown = claim(rng, task)
    heard = [say(rng, task, CRITICS) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
    notes = ["right" if own == shown else f"it is {own}" for own in heard]
    answer = shown
    if shown == task.answer and rng.random() >= DEFENCE:
        answer = task.misconception
    elif task.answer in heard and rng.random() < CORRECTION:
        answer = task.answer
    fields = {"persona": rng.choice(PERSONAS), "query": task.question, "solution": f"ANSWER: {shown}"}
    return {**fields, "critiques": blocks.critiques(notes)}, f"<revised_solution>ANSWER: {answer}</revised_solution>"


def kept(rng: Demonstrator, field: str, form: str) -> Pair:
    """CoNL, memory buffer: keep the answer line of a solution, or the point of a critique."""
    text = form.format(claim(rng, pick(rng, choice=True)))
    return {field: text}, text
