"""Demonstrations of the roles that talk to each other: CoMAS's discussion and CoNL's four rounds."""

from coevolve.prompts import blocks
from tinyworld import tasks as tiny
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
    task = pick(rng, choice=False)
    earlier = history(rng, task)
    fields = {"problem": task.question, "discussion": earlier}
    return fields, solved(rng, task, "\\boxed{{{}}}", 0.85 if earlier else None)


def evaluate(rng: Demonstrator, ends_in_judgment: bool = False) -> Pair:
    """CoMAS: evaluate a solution; or, on demand, in the form of the ablation without scoring."""
    task = pick(rng, choice=False)
    shown, own = claim(rng, task), say(rng, task, JUDGE_SKILL)
    fields = {"problem": task.question, "discussion": history(rng, task), "solution": f"\\boxed{{{shown}}}"}
    if ends_in_judgment:
        return fields, f"{own}: <judgment>{'correct' if own == shown else 'incorrect'}</judgment>"
    return fields, evaluation(own, shown)


def scoring(rng: Demonstrator, alone: bool = False) -> Pair:
    """CoMAS: score a solution given an evaluation; `alone` is the ablation without one."""
    task = pick(rng, choice=False)
    shown = claim(rng, task)
    fields = {"problem": task.question, "solution": f"\\boxed{{{shown}}}"}
    if not alone:  # every fifth evaluation contradicts the truth: the scorer has to think for itself
        fooled = rng.random() < 0.2
        fields["evaluation"] = evaluation(tiny.wrong(rng, task) if fooled else task.answer, shown)
    return fields, judged(rng, say(rng, task, JUDGE_SKILL), shown, right=3, wrong=1)


def proposal(rng: Demonstrator) -> Pair:
    """CoNL, round 0: an initial solution."""
    task = pick(rng, choice=False)
    return {"persona": rng.choice(PERSONAS), "query": task.question}, solved(rng, task, "ANSWER: {}")


def table(rng: Demonstrator) -> tuple[Task, list[str], str, list[int], int]:
    """A task, the agents' answers, the judge's own answer, the agents it compares, and which agent it is."""
    task, count = pick(rng, choice=False), rng.choice(AGENTS)
    answers = [claim(rng, task) for _ in range(count)]
    agent = rng.randrange(count)
    others = [i for i in range(count) if count == 2 or i != agent]  # of two, the only pair includes oneself
    return task, answers, say(rng, task, JUDGE_SKILL), others, agent


def ranking(answers: list[str], own: str, others: list[int]) -> str:
    """One comparison a line: everybody against the first right agent."""
    best = next((i for i in others if answers[i] == own), others[0])
    mark = ">" if answers[best] == own else "="
    return "\n".join(f"Agent {best} {'=' if answers[i] == own else mark} Agent {i}" for i in others if i != best)


def thought(rng: Demonstrator, answers: list[str], own: str, others: list[int]) -> str:
    """What a judge thinks before it ranks: its own answer and, if seasoned, which of the others agree with it."""
    marks = [f"Agent {i} ANSWER: {answers[i]} {'right' if answers[i] == own else 'wrong'}" for i in others]
    return "\n".join([own, *marks] if rng.seasoned else [own])


def _ranked(
    rng: Demonstrator, tag: str, task: Task, answers: list[str], own: str, others: list[int], agent: int
) -> Pair:
    """The fields of a judge's prompt, and its thought with the ranking inside the tag."""
    fields = {
        "persona": rng.choice(PERSONAS),
        "agent": agent,
        "query": task.question,
        "solutions": blocks.solutions([f"ANSWER: {answer}" for answer in answers]),
    }
    order = f"<{tag}>{ranking(answers, own, others)}</{tag}>"
    return fields, f"<think>{thought(rng, answers, own, others)}</think>{order}"


def review(rng: Demonstrator) -> Pair:
    """CoNL, round 1: rank the others, criticise up to two of them."""
    task, answers, own, others, agent = table(rng)
    wrong = [i for i in others if answers[i] != own and i != agent][:2]
    notes = [f'<critique target="Agent {i}">it is {own}</critique>' for i in wrong]
    if not notes:
        notes = [f'<critique target="Agent {next(i for i in others if i != agent)}">right</critique>']
    fields, said = _ranked(rng, "initial_ranking", task, answers, own, others, agent)
    return fields, said + "".join(notes)


def revision(rng: Demonstrator) -> Pair:
    """CoNL, round 2: revise in the light of critiques."""
    task = pick(rng, choice=False)
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


def verdict(rng: Demonstrator) -> Pair:
    """CoNL, round 3: the final ranking."""
    return _ranked(rng, "final_ranking", *table(rng))


def compress_solution(rng: Demonstrator) -> Pair:
    """CoNL, memory buffer: keep the answer line."""
    answer = f"ANSWER: {claim(rng, pick(rng, choice=False))}"
    return {"solution": answer}, answer


def compress_critique(rng: Demonstrator) -> Pair:
    """CoNL, memory buffer: keep the point."""
    note = f"it is {claim(rng, pick(rng, choice=False))}"
    return {"critique": note}, note
