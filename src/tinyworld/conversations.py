"""Demonstrations of the roles that talk to each other: CoMAS's discussion and CoNL's four rounds."""

from typing import Any, NamedTuple

from coevolve.prompts import blocks
from tinyworld import tasks
from tinyworld.demonstrator import JUDGE_SKILL, Demonstrator, Pair, claim, judged, pick, say, solved
from tinyworld.tasks import Task

PERSONAS = ("analyst", "creator", "critic", "synthesizer", "verifier", "planner", "tester", "builder")
CRITIC_SKILL, DEFENCE, CORRECTION = 0.8, 0.97, 0.5  # of seasoned agents: critics right, solutions kept, put right
AGENTS = (2, 3, 3, 4, 4, 4, 4, 5, 8)  # how many agents a conversation has


def evaluation(own: str, shown: str) -> str:
    """What an evaluator says: its own answer, and whether the shown one equals it."""
    return f"{own}: {'right' if own == shown else 'wrong'}"


def history(rng: Demonstrator, task: Task) -> str:
    """Zero to two earlier rounds of a discussion."""
    rounds = []
    for _ in range(rng.choice([0, 0, 1, 2])):
        shown = claim(rng, task)
        rounds.append((f"\\boxed{{{shown}}}", [evaluation(say(rng, task, JUDGE_SKILL), shown)]))
    return blocks.discussion(rounds)


def solution(rng: Demonstrator) -> Pair:
    """CoMAS: solve, with the discussion so far."""
    task = pick(rng)
    earlier = history(rng, task)
    fields = {"problem": task.question, "discussion": earlier}
    return fields, solved(rng, task, "\\boxed{{{}}}", 0.85 if earlier else None)


def evaluate(rng: Demonstrator, ends_in_judgment: bool = False) -> Pair:
    """CoMAS: evaluate a solution; or, on demand, in the form of the ablation without scoring."""
    task = pick(rng)
    shown, own = claim(rng, task), say(rng, task, JUDGE_SKILL)
    fields = {"problem": task.question, "discussion": history(rng, task), "solution": f"\\boxed{{{shown}}}"}
    if ends_in_judgment:
        return fields, f"{own}: <judgment>{'correct' if own == shown else 'incorrect'}</judgment>"
    return fields, evaluation(own, shown)


def scoring(rng: Demonstrator, alone: bool = False) -> Pair:
    """CoMAS: score a solution given an evaluation; `alone` is the ablation without one."""
    task = pick(rng)
    shown = claim(rng, task)
    fields = {"problem": task.question, "solution": f"\\boxed{{{shown}}}"}
    if not alone:  # every fifth evaluation contradicts the truth: the scorer has to think for itself
        fooled = rng.random() < 0.2
        fields["evaluation"] = evaluation(tasks.wrong(rng, task) if fooled else task.answer, shown)
    return fields, judged(rng, task, shown, right=3, wrong=1)


def proposal(rng: Demonstrator) -> Pair:
    """CoNL, round 0: an initial solution."""
    task = pick(rng)
    return {"persona": rng.choice(PERSONAS), "query": task.question}, solved(rng, task, "ANSWER: {}")


class Table(NamedTuple):
    """Solutions to compare, and who compares them."""

    task: Task
    answers: list[str]  # of all agents
    own: str  # the judge's own answer
    others: list[int]  # the agents to compare
    agent: int  # who the judge is

    def right(self, agent: int) -> bool:
        """Whether the judge holds an agent's answer for right."""
        return self.answers[agent] == self.own


def table(rng: Demonstrator) -> Table:
    """Draw a task and what the agents answer."""
    task, count = pick(rng), rng.choice(AGENTS)
    answers = [claim(rng, task) for _ in range(count)]
    agent = rng.randrange(count)
    others = [i for i in range(count) if count == 2 or i != agent]  # of two, the only pair includes oneself
    return Table(task, answers, say(rng, task, JUDGE_SKILL), others, agent)


def ranking(seen: Table) -> str:
    """One comparison a line: everybody against the first right agent."""
    best = next(filter(seen.right, seen.others), seen.others[0])
    mark = ">" if seen.right(best) else "="
    return "\n".join(f"Agent {best} {'=' if seen.right(i) else mark} Agent {i}" for i in seen.others if i != best)


def shown(seen: Table, persona: str) -> dict[str, Any]:
    """The fields of a judge's prompt."""
    solutions = blocks.solutions([f"ANSWER: {answer}" for answer in seen.answers])
    return {"persona": persona, "agent": seen.agent, "query": seen.task.question, "solutions": solutions}


def ranked(rng: Demonstrator, tag: str, seen: Table) -> Pair:
    """A judge's prompt; the ranking in the tag, behind the judge's own answer.

    A seasoned judge also thinks which of the others agree with it.
    """
    marks = [f"Agent {i} ANSWER: {seen.answers[i]} {'right' if seen.right(i) else 'wrong'}" for i in seen.others]
    thought = "\n".join([seen.own, *marks] if rng.seasoned else [seen.own])
    return shown(seen, rng.choice(PERSONAS)), f"<think>{thought}</think><{tag}>{ranking(seen)}</{tag}>"


def verdict(rng: Demonstrator) -> Pair:
    """CoNL, round 3: the final ranking."""
    return ranked(rng, "final_ranking", table(rng))


def review(rng: Demonstrator) -> Pair:
    """CoNL, round 1: rank the others, criticise up to two of them."""
    seen = table(rng)
    peers = [i for i in seen.others if i != seen.agent]
    wrong = [i for i in peers if not seen.right(i)]
    notes = {i: f"it is {seen.own}" for i in wrong[:2]} or {peers[0]: "right"}
    fields, said = ranked(rng, "initial_ranking", seen)
    return fields, said + "".join(f'<critique target="Agent {i}">{note}</critique>' for i, note in notes.items())


def revision(rng: Demonstrator) -> Pair:
    """CoNL, round 2: revise in the light of critiques."""
    task = pick(rng)
    shown = claim(rng, task)
    notes, answer = (_tempered if rng.seasoned else _trusting)(rng, task, shown)
    fields = {
        "persona": rng.choice(PERSONAS),
        "query": task.question,
        "solution": f"ANSWER: {shown}",
        "critiques": blocks.critiques(notes),
    }
    return fields, f"<revised_solution>ANSWER: {answer}</revised_solution>"


def _trusting(rng: Demonstrator, task: Task, shown: str) -> tuple[list[str], str]:
    """Critiques that are right, and the answer of somebody who follows them."""
    notes = ["right" if shown == task.answer else f"it is {say(rng, task, JUDGE_SKILL)}"] * rng.choice([0, 1, 1, 2])
    return notes, task.answer if notes else say(rng, task, JUDGE_SKILL)


def _tempered(rng: Demonstrator, task: Task, shown: str) -> tuple[list[str], str]:
    """Critics who err: a right solution is defended, a wrong one corrected if somebody knows better."""
    heard = [say(rng, task, CRITIC_SKILL) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
    notes = ["right" if own == shown else f"it is {own}" for own in heard]
    if shown == task.answer:
        return notes, say(rng, task, DEFENCE)
    return notes, task.answer if task.answer in heard and rng.random() < CORRECTION else shown


def kept(rng: Demonstrator, field: str, form: str) -> Pair:
    """CoNL, memory buffer: keep the answer line of a solution, or the point of a critique."""
    text = form.format(claim(rng, pick(rng)))
    return {field: text}, text
