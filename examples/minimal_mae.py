"""One training step of Multi-Agent Evolve (MAE) without the framework: read it top to bottom.

One language model plays three roles. As Proposer it asks, as Solver it answers, as Judge it grades
questions and answers. Then one optimiser step makes every reply more likely that was rewarded above
the average of its role. Section, line and table numbers are the paper's (arXiv:2510.23595).

`python examples/minimal_mae.py` takes a few seconds on a CPU.
"""

import re
from dataclasses import dataclass
from random import Random
from statistics import fmean, pstdev

import torch

from coevolve.engines.loading import load_policy
from coevolve.models.policy import Policy
from coevolve.types import Reply, Turn
from tinyworld.oracle import TinyWorld

SEED = 0
STEP = 1
EPISODES = 16  # played side by side, from the same weights and the same questions
ATTEMPTS = 5  # of a proposed question, to see how difficult it is (Table 3)
REFERENCE_PROBABILITY = 0.5  # the setting called "half" (section 5)
QUALITY_THRESHOLD = 0.7  # below it a question stays out of the pool (section 4.1)
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01
CLIP_LOW = 0.2
CLIP_HIGH = 0.28
ENTROPY_COEF = 0.001
MAX_GRAD_NORM = 1.0
MAX_TOKENS = 64

# The embedded backbone has 0.25 million weights and was taught a handful of short forms. A real
# model gets the paper's long prompts instead: methods/mae/prompts/*.full.txt.
PROPOSE = "propose"
PROPOSE_LIKE = "propose<ref>{reference}</ref>"
SOLVE = "solve<question>{question}</question>"
JUDGE_QUESTION = "judge<question>{question}</question>"
JUDGE_ANSWER = "judge<question>{question}</question><answer>{answer}</answer>"


@dataclass
class Sample:
    """A reply that earned a reward, and the role that gave it."""

    role: str
    reply: Reply
    reward: float
    advantage: float = 0.0


# Reading replies. A reply that cannot be read is None, and the rewards say what that costs.


def read_tag(text: str, tag: str) -> str | None:
    """Return what stands between the only <tag> and </tag>."""
    pairs = re.findall(f"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
    if len(pairs) != 1:
        return None
    content = pairs[0].strip()
    return content or None


def read_score(text: str) -> float | None:
    """Map a grade from 1 to 10 to the interval from 0 to 1; a number out of range is neutral."""
    content = read_tag(text, "score")
    if content is None or not re.fullmatch(r"-?\d+(\.\d+)?", content):
        return None
    grade = float(content)
    return (grade - 1) / 9 if 1 <= grade <= 10 else 0.5


def neutral(score: float | None) -> float:
    """Return 0.5 for a judgement that cannot be read (section 5.3.2)."""
    return 0.5 if score is None else score


def format_reward(text: str, tag: str) -> float:
    """Return whether the reply holds what it should (sections 4.1 to 4.3)."""
    return float(read_tag(text, tag) is not None)


@dataclass
class Speaker:
    """The model in one episode. It plays every role; only the prompts differ."""

    policy: Policy
    episode: int
    turns: int = 0

    def ask(self, role: str, *prompts: str) -> list[Reply]:
        """Answer some prompts side by side."""
        turns = []
        for prompt in prompts:
            message = {"role": "user", "content": prompt}
            # The key seeds the sampling noise: the same key and prompt get the same reply.
            key = (SEED, STEP, self.episode, self.turns)
            turns.append(Turn(role, (message,), max_tokens=MAX_TOKENS, key=key))
            self.turns += 1
        return self.policy.generate(turns, temperature=1.0)


Grade = float | None  # None: it cannot be read


def judge(speaker: Speaker, question: str, replies: list[Reply]) -> list[Grade]:
    """Have the Judge grade the answers in some replies; no answer gets 0 without a judgement."""
    answers = [read_tag(reply.text, "answer") for reply in replies]
    given = [answer for answer in answers if answer is not None]
    prompts = [
        JUDGE_ANSWER.format(question=question, answer=answer) for answer in given
    ]
    judgements = iter(speaker.ask("judge", *prompts))
    grades: list[Grade] = []
    for answer in answers:
        is_judged = answer is not None
        grade = read_score(next(judgements).text) if is_judged else 0.0
        grades.append(grade)
    return grades


def assess(speaker: Speaker, question: str | None) -> tuple[float, float]:
    """Return the quality and the difficulty of a proposed question (lines 10 and 11)."""
    if question is None:
        return 0.0, 0.0
    prompts = [JUDGE_QUESTION.format(question=question)]
    prompts += [SOLVE.format(question=question)] * ATTEMPTS
    judgement, *attempts = speaker.ask("assessor", *prompts)
    quality = neutral(read_score(judgement.text))
    grades = judge(speaker, question, attempts)
    readable = [grade for grade in grades if grade is not None]
    mean = fmean(readable) if readable else 0.5
    return quality, 1 - mean


def play(policy: Policy, world: TinyWorld, episode: int) -> list[Sample]:
    """Play one episode (Algorithm 1, lines 4 to 22) and return what is trained on."""
    rng = Random(f"{SEED}/{STEP}/{episode}")
    speaker = Speaker(policy, episode)
    pool = world.seed_questions()

    # The Proposer asks a question, sometimes one like a question of the pool (lines 4 to 9).
    prompt = PROPOSE
    if rng.random() < REFERENCE_PROBABILITY:
        reference = rng.choice(pool)
        prompt = PROPOSE_LIKE.format(reference=reference)
    (proposal,) = speaker.ask("proposer", prompt)

    # A clear question that the Solver cannot answer yet earns most (section 4.1, line 15).
    question = read_tag(proposal.text, "question")
    quality, difficulty = assess(speaker, question)
    form = format_reward(proposal.text, "question")
    reward = (quality + difficulty + form) / 3
    samples = [Sample("proposer", proposal, reward)]

    # A good question joins the pool, unless it is a test question (lines 12 to 14).
    is_good = question is not None and quality >= QUALITY_THRESHOLD
    if is_good and question not in pool and not world.held_out(question):
        pool = [*pool, question]

    # The Solver answers a question of the pool; the Judge grades it (section 4.2, lines 16 to 22).
    question = rng.choice(pool)
    (solution,) = speaker.ask("solver", SOLVE.format(question=question))
    (grade,) = judge(speaker, question, [solution])
    form = format_reward(solution.text, "answer")
    reward = (neutral(grade) + form) / 2
    samples.append(Sample("solver", solution, reward))

    # The Judge grades an answer once more, to be trained; the paper draws it from a pool of pairs.
    # It is never told what is right, so all that it can earn is the reward for its form (section
    # 4.3, lines 20 and 21).
    answer = read_tag(solution.text, "answer")
    if answer is not None:
        prompt = JUDGE_ANSWER.format(question=question, answer=answer)
        (judgement,) = speaker.ask("judge", prompt)
        reward = format_reward(judgement.text, "score")
        samples.append(Sample("judge", judgement, reward))
    return samples


def set_advantages(samples: list[Sample]) -> None:
    """Standardise rewards within each role: Task-Relative REINFORCE++ (section 4.4)."""
    for role in {sample.role for sample in samples}:
        group = [sample for sample in samples if sample.role == role]
        rewards = [sample.reward for sample in group]
        mean = fmean(rewards)
        spread = pstdev(rewards) + 1e-8
        for sample in group:
            sample.advantage = (sample.reward - mean) / spread


def loss_of(policy: Policy, sample: Sample) -> torch.Tensor:
    """Return the PPO loss with an entropy bonus, summed over the reply's tokens."""
    reply = sample.reply
    tokens = torch.tensor(reply.prompt_ids + reply.completion_ids)
    first = len(reply.prompt_ids)
    # The logits at one position predict the next token.
    logits_SV = policy.model(tokens[None]).logits[0]
    logits_TV = logits_SV[first - 1 : -1]
    all_logprobs_TV = logits_TV.log_softmax(dim=-1)
    probabilities_TV = all_logprobs_TV.exp()
    entropy_T = -(probabilities_TV * all_logprobs_TV).sum(dim=-1)
    targets_T = tokens[first:]
    logprobs_T = all_logprobs_TV.gather(1, targets_T[:, None])[:, 0]
    sampled_T = logprobs_T.new_tensor(reply.logprobs)
    # The ratio is 1 up to rounding, as these weights have sampled the reply. Its gradient is not 0.
    ratio_T = (logprobs_T - sampled_T).exp()
    clipped_T = ratio_T.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    unclipped_objective_T = ratio_T * sample.advantage
    clipped_objective_T = clipped_T * sample.advantage
    objective_T = torch.minimum(unclipped_objective_T, clipped_objective_T)
    return -(objective_T + ENTROPY_COEF * entropy_T).sum()


def train_step(policy: Policy, world: TinyWorld) -> tuple[list[Sample], float, float]:
    """Play, then learn; return the samples, the loss and the norm of its gradient."""
    samples = []
    for episode in range(EPISODES):
        samples += play(policy, world, episode)
    set_advantages(samples)

    parameters = list(policy.model.parameters())
    optimizer = torch.optim.AdamW(
        parameters,
        lr=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
    )
    # Every token of the batch counts alike, whoever said it.
    tokens = sum(len(sample.reply.completion_ids) for sample in samples)
    loss = sum(loss_of(policy, sample) for sample in samples) / tokens
    loss.backward()
    grad_norm = torch.nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
    optimizer.step()
    return samples, float(loss.detach()), float(grad_norm)


def main() -> None:
    """Take one step and print who said what, what it earned and what was learned."""
    policy = load_policy("tiny")
    samples, loss, grad_norm = train_step(policy, TinyWorld())
    for sample in samples:
        reward = round(sample.reward, 2)
        advantage = round(sample.advantage, 2)
        print(sample.role, reward, advantage, sample.reply.text, sep="\t")
    print("loss", round(loss, 4), "gradient norm", round(grad_norm, 3))


if __name__ == "__main__":
    main()
