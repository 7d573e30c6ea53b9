"""CoNL: N personas of one policy propose, rank and criticise, revise, and rank again (section 3, Algorithm 1).

Straight-line text code: reads replies, never tokens. What a vote or a critique is worth is in `rewards`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import cycle, islice
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method, paper_table
from coevolve.methods.conl import metrics, parsing, rewards
from coevolve.methods.conl.conversation import Conversation
from coevolve.methods.conl.parsing import Critique, Ranking, Rankings
from coevolve.rollout.engine import Engine
from coevolve.runs.record import Recorder
from coevolve.text import blocks, prompts
from coevolve.text.parse import answer_line, filled, tag
from coevolve.types import Dialogue, Episode, Outcome, Reply, Role, Sample
from coevolve.worlds import World

PERSONAS = ("analyst", "creator", "critic", "synthesizer", "verifier", "planner", "tester", "builder")  # Appendix J
FAMILIES = ("add", "sub", "mul", "prec", "eq", "mod", "rate", "unit", "fact", "div", "code", "ops")  # section 4.1
OWN_MARKS = re.compile(r"<(?=/?(?:solution|critique|question|initial_ranking|final_ranking)\b)")


class CoNL(Method):
    """Conversation for non-verifiable learning. The defaults are the paper's numbers; ablations are arguments."""

    paper_name: ClassVar[str] = "conl"
    read_answer = staticmethod(answer_line)
    gates: ClassVar[Mapping[str, str]] = {"decided comparisons": "decided"}
    families: ClassVar[tuple[str, ...]] = FAMILIES

    TRAINING: ClassVar[Mapping[str, Any]] = paper_table("conl")

    PAPER: ClassVar[Mapping[str, Any]] = paper_table("conl", "printed")

    agents: Annotated[int, Field(ge=2)] = 4
    """N, the number of agents (section 4.1)."""

    w_solution: NonNegativeFloat = 1.0
    """w1 (section 3.2); 0: Table 3, without solution quality."""

    w_diagnostic: NonNegativeFloat = 2.0
    """w2; 0: Table 3, without persuasion; the case studies multiply by 5."""

    w_consensus: NonNegativeFloat = 1.0
    """w3; 0: Table 3, without consensus."""

    blind: bool = True
    """False: Table 3, each agent reads the rankings given before its own."""

    estimator: Estimator = "segment_centred"
    """segment_centred; gae: a learned value baseline, lambda 0.95 (Appendix G)."""

    own_votes: bool = False
    """Whether votes on one's own solution count; with two agents they always do."""

    leave_one_out: bool = False
    """Whether an agent's own vote is left out of the majority it is compared with."""

    pay_thought: bool = False
    """Whether the text before a final ranking has the ranking's reward as well."""

    prior_variance: PositiveFloat = 1.0
    """Variance of the Gaussian prior of the Bradley-Terry scores."""

    judge_temperature: NonNegativeFloat | None = None
    """Sampling temperature of rankings (rounds 1 and 3); None: the run's."""

    revision_reads: Literal["own", "all"] = "own"
    """Solutions that a revision reads: the agent's own, or all initial ones (line 10)."""

    memory: NonNegativeInt = 8000
    """Solutions and critiques longer than this many characters are compressed; 0: never."""

    test_time: bool = False
    """Whether to train on the test questions, as the paper does (section 4.1)."""

    examined: NonNegativeInt = 20
    """Test questions per family that are discussed after training (Table 4)."""

    def define_roles(self) -> None:
        """Make the personas, the roles of the four rounds, the memory buffer and the solver."""
        names = islice(cycle(PERSONAS), self.agents)
        self.personas = [self._persona(name) for name in names]
        self.proposal = self.role("proposal")
        self.revision = self.role("revision")
        self.review = self.role("review", temperature=self.judge_temperature)
        self.verdict = self.role("verdict", temperature=self.judge_temperature)
        self.compress_solution = self.role("compress_solution")
        self.compress_critique = self.role("compress_critique")
        # The solver has no persona (Appendix E); only the full prompts have a text without one.
        plain = self.role("plain", "proposal") if self.prompt == "full" else self.proposal
        self.solver = replace(plain, prompt=plain.prompt.replace("{persona}", self.personas[0]))

    def episode(self, rng: Random) -> Episode:
        """Sample a query, let the agents talk, and pay every segment (Algorithm 1, lines 4 to 21)."""
        return (yield from self.discuss(rng.choice(self.questions)))  # 4

    def discuss(self, question: str) -> Episode:
        """Algorithm 1, lines 5 to 21, for a given query."""
        talk = yield from self.converse(question)  # 5-14
        return Outcome(self.paid(talk), trace=talk)  # 15-21

    def converse(self, question: str) -> Dialogue[Conversation]:
        """Play the four rounds (lines 5 to 14)."""
        agents = list(enumerate(self.personas))
        proposals = yield [self.proposal(persona=p, query=question) for _, p in agents]  # 8
        initial = [reply.text for reply in proposals]
        shown = yield from self.remember(self.compress_solution, "solution", initial)
        reviews, first = yield from self.rank(self.review, "initial_ranking", question, shown)  # 9
        critiques = [parsing.critiques(reply.text, self.agents, i) for i, reply in enumerate(reviews)]
        others = f"{blocks.solutions(shown)}\n" if self.revision_reads == "all" else ""
        told = [others + blocks.critiques(received) for received in (yield from self.received(critiques))]
        revisions = yield [
            self.revision(persona=p, query=question, solution=shown[i], critiques=told[i]) for i, p in agents
        ]  # 10
        tagged = [tag(reply.text, "revised_solution") for reply in revisions]
        revised = [old if new is None else new for old, new in zip(initial, tagged, strict=True)]
        shown = yield from self.remember(self.compress_solution, "solution", revised)
        verdicts, last = yield from self.rank(self.verdict, "final_ranking", question, shown)  # 11
        before, after = self.scores(first), self.scores(last)  # 13-14
        rounds = [proposals, reviews, revisions, verdicts]
        return Conversation(question, rounds, first, critiques, last, before, after, revised)

    def rank(self, role: Role, name: str, question: str, shown: list[str]) -> Dialogue[tuple[list[Reply], Rankings]]:
        """Ask everybody for a ranking, all at once or (not blind) in turn; return replies and readable votes."""
        replies: list[Reply] = []
        votes: Rankings = []
        own = self.own_votes or self.agents == 2  # of two, the only pair includes oneself
        everybody = list(enumerate(self.personas))
        for speakers in [everybody] if self.blind else [[agent] for agent in everybody]:
            block = "\n".join([blocks.solutions(shown), *(spoken(i, name, ranking) for i, ranking in enumerate(votes))])
            replies += yield [role(persona=p, agent=i, query=question, solutions=block) for i, p in speakers]
            votes += [parsing.ranking(replies[i].text, name, self.agents, None if own else i) for i, _ in speakers]
        return replies, votes

    def received(self, critiques: Sequence[Sequence[Critique]]) -> Dialogue[list[list[str]]]:
        """Return, for each agent, the critiques about it as it will read them."""
        flat = [critique for written in critiques for critique in written]
        texts = yield from self.remember(self.compress_critique, "critique", [critique.text for critique in flat])
        pairs = list(zip(flat, texts, strict=True))
        return [[text for critique, text in pairs if critique.target == k] for k in range(self.agents)]

    def remember(self, compress: Role, field: str, texts: Sequence[str]) -> Dialogue[list[str]]:
        """The memory buffer (section 4.1): return texts as others will read them, long ones in a condensed version."""
        long = [i for i, text in enumerate(texts) if self.memory and len(text) > self.memory]
        kept = list(texts)
        replies = yield [compress(**{field: quoted(texts[i])}) for i in long]
        for i, reply in zip(long, replies, strict=True):
            kept[i] = condensed(texts[i], reply.text)
        return [quoted(text) for text in kept]

    def scores(self, votes: Sequence[Ranking]) -> list[float]:
        """The agents' Bradley-Terry qualities by everybody's votes (lines 13 and 14)."""
        return rewards.bradley_terry([vote for ranking in votes for vote in ranking], self.agents, self.prior_variance)

    def agreement(self, talk: Conversation) -> list[float | None]:
        """How far each agent's final votes agree with the majority (line 19)."""
        return [rewards.majority_alignment(mine, talk.final, self.leave_one_out) for mine in talk.final]

    def paid(self, talk: Conversation) -> list[Sample]:
        """Lines 16 to 20 and Table 1: each segment with its reward; None masks a segment."""
        samples: list[Sample] = []
        agreement = self.agreement(talk)
        for i, (proposal, review, revision, verdict) in enumerate(zip(*talk.rounds, strict=True)):
            solution = _times(self.w_solution, talk.after[i])  # 17
            gain = rewards.diagnostic([c.target for c in talk.critiques[i]], talk.before, talk.after)
            diagnostic = _times(self.w_diagnostic, gain)  # 18
            consensus = _times(self.w_consensus, agreement[i])  # 19
            # Without a readable one the first solution stands, and nothing is paid.
            tagged = tag(revision.text, "revised_solution") is not None
            critiques = tuple(critique.span for critique in talk.critiques[i])
            spans = {"initial_ranking": parsing.span(review.text, "initial_ranking"), "critique": critiques}
            reviewed = {"initial_ranking": None, "critique": diagnostic if critiques else None}
            samples += [
                proposal.earns({"initial_solution": solution}, proposal.group_id),
                review.earns(reviewed, review.group_id, spans),
                _segment(revision, "revised_solution", solution if tagged else None),
                _segment(verdict, "final_ranking", consensus, self.pay_thought),
            ]
        return samples

    @cached_property
    def questions(self) -> list[str]:
        """The queries D to train on: not the test questions, unless at test time."""
        return self.world.questions("test" if self.test_time else "train", self.families)

    def _persona(self, name: str) -> str:
        return name if self.prompt != "full" else prompts.read("conl", f"personas/{name}", folder=self.prompt_folder)

    @cached_property
    def _changed(self) -> dict[str, str]:
        """Lines of the full prompts that an ablation makes untrue: {line: the one that replaces it}.

        Compact prompts say nothing that an ablation changes; a user's own prompts without these lines stay as they are.
        """
        ablations = {"open": not self.blind, "own": self.own_votes, "all": self.revision_reads == "all"}
        names = [name for name, asked in ablations.items() if asked and self.prompt == "full"]
        texts = [prompts.read("conl", f"ablations/{name}", folder=self.prompt_folder) for name in names]
        pairs = [pair.split("\n") for text in texts for pair in text.split("\n\n")]
        return {line: replacement for line, replacement in pairs}

    def role(self, prompt: str, name: str | None = None, **more: Any) -> Role:
        """The role that speaks a prompt, with the lines that an ablation changes; see `Method.role`."""
        role = super().role(prompt, name, **more)
        return replace(role, prompt="\n".join(self._changed.get(line, line) for line in role.prompt.split("\n")))

    def after_run(self, engine: Engine, key: tuple[int, ...], log: Recorder) -> dict[str, Any]:
        """Discuss test items with the trained policy; conversations.jsonl holds the paper's measures of each."""
        if self.examined:
            log.rows("conversations", metrics.examine(self, engine, self.examined, key))
        return {}

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """The oracle's view of the conversation, its scores, and the null level of the diagnostic reward."""
        return metrics.facts_of(self, outcome.trace, world)


def quoted(text: str) -> str:
    """A text as another agent may read it: it cannot close its own block or open somebody else's."""
    return OWN_MARKS.sub("&lt;", text)


def condensed(original: str, summary: str) -> str:
    """The memory buffer's summary with the original's answer line: that one must survive.

    An empty summary leaves the original as it is.
    """
    answer, text = answer_line(original), filled(summary)
    if text is None:
        return original
    if answer is None or answer_line(text) == answer:
        return text
    lines = [line for line in text.split("\n") if not line.strip().startswith("ANSWER:")]
    return "\n".join([*lines, f"ANSWER: {answer}"])


def spoken(agent: int, name: str, votes: Ranking) -> str:
    """How a ranking is shown to those who speak later (the ablation without blind ranking)."""
    lines = [f"Agent {a} > Agent {b}" for a, b, weight in votes if weight == 1]
    lines += [f"Agent {a} = Agent {b}" for a, b, weight in votes if weight != 1 and a < b]
    return "\n".join([f"Agent {agent}<{name}>", *lines, f"</{name}>"])


def _segment(reply: Reply, name: str, reward: float | None, before: bool = False) -> Sample:
    """A reply with one paid segment, `before` from the reply's start; without that segment nothing is paid."""
    spans = parsing.span(reply.text, name)
    if before:
        spans = tuple((0, end) for _, end in spans)
    return reply.earns({name: reward if spans else None}, reply.group_id, {name: spans})


def _times(weight: float, reward: float | None) -> float | None:
    """A weighted reward; a weight of 0 masks the segment instead of paying 0."""
    return None if reward is None or not weight else weight * reward
