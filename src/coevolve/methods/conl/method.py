"""CoNL: N personas of one policy propose, rank and criticise, revise, and rank again.

The generators follow section 3 and Algorithm 1, whose line numbers are in the comments. They read
replies, never tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import cycle, islice
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    model_validator,
)

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method, paper_table
from coevolve.methods.conl import parsing, rewards
from coevolve.methods.conl.credit import assign_credit
from coevolve.methods.conl.memory import condensed, quoted, ranking_block
from coevolve.methods.conl.metrics import episode_metrics
from coevolve.methods.conl.records import (
    AgentRewards,
    ConversationTrace,
    Critique,
    Rankings,
)
from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.runs.record import Recorder
from coevolve.text import blocks, prompts
from coevolve.text.parse import answer_line, tag
from coevolve.types import Dialogue, Episode, Outcome, Reply, Role, Sample
from coevolve.worlds import World

PERSONAS = (  # Appendix J
    "analyst",
    "creator",
    "critic",
    "synthesizer",
    "verifier",
    "planner",
    "tester",
    "builder",
)
FAMILIES = (  # of questions (section 4.1)
    "add",
    "sub",
    "mul",
    "prec",
    "eq",
    "mod",
    "rate",
    "unit",
    "fact",
    "div",
    "code",
    "ops",
)


class CoNL(Method):
    """Conversation for non-verifiable learning.

    The defaults are the paper's numbers, and each ablation is an argument.
    """

    paper_name: ClassVar[str] = "conl"
    read_answer = staticmethod(answer_line)
    filters: ClassVar[Mapping[str, str]] = {"decided comparisons": "decided"}
    families: ClassVar[tuple[str, ...]] = FAMILIES

    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = paper_table("conl")

    PAPER_METHOD_VALUES: ClassVar[Mapping[str, Any]] = paper_table("conl", "printed")

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

    own_votes: bool = True
    """Whether votes on one's own solution count (section 3.1); with two agents they always do."""

    leave_one_out: bool = False
    """Whether an agent's own vote is left out of the majority it is compared with."""

    pay_thought: bool = False
    """Whether the text before a final ranking earns the ranking's reward as well."""

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

    @model_validator(mode="after")
    def check_consensus(self) -> Self:
        """Refuse a consensus reward that is the same whatever an agent votes."""
        if self.w_consensus and not rewards.consensus_can_vary(
            self.agents, self.own_votes, self.leave_one_out
        ):
            raise ValueError(
                f"agents={self.agents} with own_votes={self.own_votes} and "
                f"leave_one_out={self.leave_one_out} pays no vote more than another: "
                f"allowed are {self._ways_to_vary()}w_consensus=0"
            )
        return self

    def _ways_to_vary(self) -> str:
        """Name each field whose other value makes the consensus reward vary."""
        ways = ""
        if rewards.consensus_can_vary(self.agents, True, self.leave_one_out):
            ways += "own_votes=true, "
        if rewards.consensus_can_vary(self.agents, self.own_votes, True):
            ways += "leave_one_out=true, "
        return ways

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
        plain = self.proposal
        if self.prompt == "full":
            plain = self.role("plain", "proposal")
        solver_prompt = plain.prompt.replace("{persona}", self.personas[0])
        self.solver = replace(plain, prompt=solver_prompt)

    # The conversation (section 3.1).

    def episode(self, rng: Random) -> Episode:
        """Sample a query, hold the conversation and reward every segment (lines 4 to 21)."""
        # Line 4
        question = rng.choice(self.questions)
        return (yield from self.discuss(question))

    def discuss(self, question: str) -> Episode:
        """Play lines 5 to 21 of Algorithm 1 for one query."""
        # Lines 5 to 14
        conversation = yield from self.converse(question)
        samples: list[Sample] = []
        for agent in range(self.agents):
            # Lines 17 to 19, then line 20
            earned = self.reward(conversation, agent)
            samples += assign_credit(conversation, agent, earned, self.pay_thought)
        return Outcome(samples, trace=conversation)

    def converse(self, question: str) -> Dialogue[ConversationTrace]:
        """Play the four rounds and score the solutions before and after (lines 5 to 14)."""
        # Round 0 (line 8)
        proposals = yield [
            self.proposal(persona=persona, query=question) for persona in self.personas
        ]
        initial = [reply.text for reply in proposals]

        # Round 1 (line 9)
        shown = yield from self.remember(self.compress_solution, "solution", initial)
        reviews = yield from self.rank(self.review, "initial_ranking", question, shown)
        initial_rankings = self.read_rankings(reviews, "initial_ranking")
        critiques = self.read_critiques(reviews)

        # Round 2 (line 10)
        revisions = yield from self.revise(question, shown, critiques)
        revised = revised_solutions(initial, revisions)

        # Round 3 (line 11)
        shown = yield from self.remember(self.compress_solution, "solution", revised)
        verdicts = yield from self.rank(self.verdict, "final_ranking", question, shown)
        final_rankings = self.read_rankings(verdicts, "final_ranking")

        # Lines 13 and 14
        initial_scores = self.score_agents(initial_rankings)
        final_scores = self.score_agents(final_rankings)
        return ConversationTrace(
            question=question,
            proposals=proposals,
            reviews=reviews,
            initial_rankings=initial_rankings,
            critiques=critiques,
            revisions=revisions,
            revised=revised,
            verdicts=verdicts,
            final_rankings=final_rankings,
            initial_scores=initial_scores,
            final_scores=final_scores,
        )

    def rank(
        self, role: Role, tag_name: str, question: str, shown: Sequence[str]
    ) -> Dialogue[list[Reply]]:
        """Return the agents' replies with rankings, given all at once (blind) or in turn.

        Agents in turn read the rankings before their own (Table 3, without blind ranking).
        """
        agents = range(self.agents)
        waves = [[agent] for agent in agents]
        if self.blind:
            waves = [list(agents)]
        replies: list[Reply] = []
        for speakers in waves:
            block = [blocks.solutions(shown)]
            for author, ranking in enumerate(self.read_rankings(replies, tag_name)):
                block.append(ranking_block(author, tag_name, ranking))
            turns = []
            for agent in speakers:
                turn = role(
                    persona=self.personas[agent],
                    agent=agent,
                    query=question,
                    solutions="\n".join(block),
                )
                turns.append(turn)
            replies += yield turns
        return replies

    def revise(
        self,
        question: str,
        shown: Sequence[str],
        critiques: Sequence[Sequence[Critique]],
    ) -> Dialogue[list[Reply]]:
        """Have every agent revise its solution by the critiques of it (line 10)."""
        received = yield from self.receive(critiques)
        introduction = ""
        if self.revision_reads == "all":
            introduction = f"{blocks.solutions(shown)}\n"
        turns = []
        for agent, persona in enumerate(self.personas):
            turn = self.revision(
                persona=persona,
                query=question,
                solution=shown[agent],
                critiques=introduction + blocks.critiques(received[agent]),
            )
            turns.append(turn)
        revisions: list[Reply] = yield turns
        return revisions

    def receive(
        self, critiques: Sequence[Sequence[Critique]]
    ) -> Dialogue[list[list[str]]]:
        """Return, for each agent, the critiques of its solution as the agent reads them."""
        written: list[Critique] = []
        for critiques_by_author in critiques:
            written += critiques_by_author
        texts = yield from self.remember(
            self.compress_critique, "critique", [critique.text for critique in written]
        )
        received: list[list[str]] = [[] for _ in range(self.agents)]
        for critique, text in zip(written, texts, strict=True):
            received[critique.target].append(text)
        return received

    def remember(
        self, compress: Role, field: str, texts: Sequence[str]
    ) -> Dialogue[list[str]]:
        """Return texts as other agents read them: quoted, and long ones condensed.

        This is the memory buffer (section 4.1); `field` names the placeholder of its prompt.
        """
        long = []
        if self.memory:
            long = [i for i, text in enumerate(texts) if len(text) > self.memory]
        summaries = yield [compress(**{field: quoted(texts[i])}) for i in long]
        remembered = list(texts)
        for i, summary in zip(long, summaries, strict=True):
            remembered[i] = condensed(texts[i], summary.text)
        return [quoted(text) for text in remembered]

    def read_rankings(self, replies: Sequence[Reply], tag_name: str) -> Rankings:
        """Read the agents' rankings; comparisons with oneself count only with `own_votes`."""
        # The only pair of two agents includes oneself.
        own_votes_count = self.own_votes or self.agents == 2
        rankings = []
        for author, reply in enumerate(replies):
            excluded = None if own_votes_count else author
            ranking = parsing.ranking(reply.text, tag_name, self.agents, excluded)
            rankings.append(ranking)
        return rankings

    def read_critiques(self, reviews: Sequence[Reply]) -> list[list[Critique]]:
        """Read the agents' critiques of the other agents."""
        critiques = []
        for author, review in enumerate(reviews):
            critiques.append(parsing.critiques(review.text, self.agents, author))
        return critiques

    # Rewards (section 3.2).

    def score_agents(self, rankings: Rankings) -> list[float]:
        """Return the agents' Bradley-Terry qualities (lines 13 and 14)."""
        return rewards.agent_scores(rankings, self.prior_variance)

    def reward(self, conversation: ConversationTrace, agent: int) -> AgentRewards:
        """Return the three weighted rewards of an agent (lines 17 to 19)."""
        targets = [critique.target for critique in conversation.critiques[agent]]
        final_rankings = conversation.final_rankings
        # Lines 17, 18 and 19
        r_sol = conversation.final_scores[agent]
        r_diag = rewards.diagnostic(
            targets, conversation.initial_scores, conversation.final_scores
        )
        r_meta = rewards.majority_alignment(
            final_rankings[agent], final_rankings, self.leave_one_out
        )
        return AgentRewards(
            solution=rewards.weighted(self.w_solution, r_sol),
            diagnostic=rewards.weighted(self.w_diagnostic, r_diag),
            consensus=rewards.weighted(self.w_consensus, r_meta),
        )

    # Questions, prompts and records.

    @cached_property
    def questions(self) -> list[str]:
        """The queries D to train on: not the test questions, unless at test time."""
        split = "test" if self.test_time else "train"
        return self.world.questions(split, self.families)

    def role(self, prompt: str, name: str | None = None, **options: Any) -> Role:
        """Return the role that speaks a prompt, with the lines that an ablation changes.

        See `Method.role`.
        """
        role = super().role(prompt, name, **options)
        lines = role.prompt.split("\n")
        changed = [self._ablation_lines.get(line, line) for line in lines]
        return replace(role, prompt="\n".join(changed))

    @cached_property
    def _ablation_lines(self) -> dict[str, str]:
        """Lines of the full prompts that an ablation makes untrue: {line: its replacement}.

        An ablation changes nothing that compact prompts say; a user's own prompts without these
        lines stay the same.
        """
        if self.prompt != "full":
            return {}
        ablations = {
            "open": not self.blind,
            "others": not self.own_votes,
            "all": self.revision_reads == "all",
        }
        replacements = {}
        for name, applies in ablations.items():
            if applies:
                text = self._read_prompt(f"ablations/{name}")
                for pair in text.split("\n\n"):
                    line, replacement = pair.split("\n")
                    replacements[line] = replacement
        return replacements

    def _persona(self, name: str) -> str:
        """Return a persona's description: one word, or with full prompts a text."""
        if self.prompt != "full":
            return name
        return self._read_prompt(f"personas/{name}")

    def _read_prompt(self, name: str) -> str:
        return prompts.read("conl", name, folder=self.prompt_folder)

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return the oracle's view of the conversation, its scores and mean rewards."""
        return episode_metrics(
            outcome.trace,
            world,
            leave_one_out=self.leave_one_out,
            prior_variance=self.prior_variance,
        )

    def after_run(
        self, engine: Engine, key: tuple[int, ...], log: Recorder
    ) -> dict[str, Any]:
        """Discuss test questions with the trained policy.

        Writes the paper's measures of each to conversations.jsonl.
        """
        if self.examined:
            log.rows("conversations", self.examine(engine, self.examined, key))
        return {}

    def examine(
        self, engine: Engine, per_family: int, key: tuple[int, ...] = ()
    ) -> list[dict[str, Any]]:
        """Discuss `per_family` test questions of each family; return the facts of each.

        The policy is not trained on them.
        """
        items = self.world.items("test", per_family, self.families)
        episodes = [self.discuss(item.question) for item in items]
        outcomes = play(episodes, engine, key)
        rows = []
        for number, (item, outcome) in enumerate(zip(items, outcomes, strict=True)):
            row = {"item": number, "family": item.family, "level": item.level}
            rows.append(row | self.observe(outcome, self.world))
        return rows


def revised_solutions(initial: Sequence[str], revisions: Sequence[Reply]) -> list[str]:
    """Return the revised solutions; where a revision holds none, the initial one stands."""
    solutions = []
    for solution, revision in zip(initial, revisions, strict=True):
        revised = tag(revision.text, "revised_solution")
        solutions.append(solution if revised is None else revised)
    return solutions
