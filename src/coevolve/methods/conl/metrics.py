"""CoNL's own measures (Appendix F, Table 4): Pass@1 of the top-ranked agent, Pass@K, Rank-rho, corrections and harm.

Pure functions of final scores and of who was right; `examine` plays conversations on test items to get them.
"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from coevolve.methods.conl import rewards
from coevolve.methods.facts import mean_known
from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.text.parse import answer_line
from coevolve.worlds import World

if TYPE_CHECKING:
    from coevolve.methods.conl.conversation import Conversation
    from coevolve.methods.conl.method import CoNL

Verdicts = Sequence[bool | None]  # of the agents' answers; None: unscored
MEASURES = ("pass_1", "pass_k", "rank_rho", "wrong_before", "fixed", "right_before", "harmed")


def rank_rho(scores: Sequence[float], right: Sequence[bool]) -> float | None:
    """Spearman's correlation of the final scores with being right (Appendix F).

    None where it is undefined: all agents right, none right, or all scores equal.
    """
    if len(set(right)) < 2 or len(set(scores)) < 2:
        return None
    from scipy.stats import spearmanr  # only here: it takes half a second to load

    return float(spearmanr(scores, right).statistic)


def measures(scores: Sequence[float], before: Verdicts, after: Verdicts) -> dict[str, float | None]:
    """All measures of one conversation; `before` and `after` say which agents were right in rounds 0 and 2.

    All are None where a single answer could not be scored. Corrections and harm (Table 4) come as counts over the
    agents: of those wrong before, how many were fixed, and of those right before, how many were harmed.
    """
    pairs = [(b, a) for b, a in zip(before, after, strict=True) if b is not None and a is not None]
    if len(pairs) < len(after):
        return dict.fromkeys(MEASURES)
    right = [a for _, a in pairs]
    return {
        "pass_1": float(right[scores.index(max(scores))]),  # of equal scores the first counts
        "pass_k": float(any(right)),
        "rank_rho": rank_rho(scores, right),
        "wrong_before": float(sum(not b for b, _ in pairs)),
        "fixed": float(sum(a and not b for b, a in pairs)),
        "right_before": float(sum(b for b, _ in pairs)),
        "harmed": float(sum(b and not a for b, a in pairs)),
    }


def facts_of(method: "CoNL", talk: "Conversation", world: World) -> dict[str, Any]:
    """Return the facts of one conversation, see `Method.observe`.

    `r_diag_null` is what the diagnostic reward would pay if every agent's two rankings were swapped at random.
    """
    answers = [[answer_line(text) for text in texts] for texts in ([r.text for r in talk.rounds[0]], talk.revised)]
    before, after = ([world.is_correct(talk.question, answer) for answer in given] for given in answers)
    targets = [[critique.target for critique in written] for written in talk.critiques]
    coin = Random(f"null {talk.question} {talk.before} {talk.after}")
    swapped = [(b, a) if coin.random() < 0.5 else (a, b) for a, b in zip(talk.initial, talk.final, strict=True)]
    null = [method.scores(votes) for votes in zip(*swapped, strict=True)]
    agreement = method.agreement(talk)
    said = {"question": talk.question, "answers_before": answers[0], "answers_after": answers[1]}
    return {
        **said,
        **{"scores_before": talk.before, "scores_after": talk.after},
        **measures(talk.after, before, after),
        "right_initial": mean_known(before),
        "right_final": mean_known(after),
        "r_sol": mean_known(talk.after),
        "r_meta": mean_known(agreement),
        "decided": mean_known([bool(mine) and value is not None for mine, value in zip(talk.final, agreement, strict=True)]),
        "r_diag": mean_known([rewards.diagnostic(to, talk.before, talk.after) for to in targets]),
        "r_diag_null": mean_known([rewards.expected_diagnostic(to, *null) for to in targets]),
        "critiques": mean_known([len(to) for to in targets]),
        "votes": mean_known([sum(share for *_, share in ranking) for ranking in talk.final]),
        "tokens_turn": mean_known([len(reply.completion_ids) for said in talk.rounds for reply in said]),
    }


def examine(method: "CoNL", engine: Engine, per_family: int, key: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Let the method discuss `per_family` test items of each family it trains on; return the facts of each item.

    Nothing is trained on.
    """
    items = method.world.items("test", per_family, method.families)
    outcomes = play([method.discuss(item.question) for item in items], engine, key)
    asked = [{"item": number, "family": item.family, "level": item.level} for number, item in enumerate(items)]
    return [{**row, **method.observe(outcome, method.world)} for row, outcome in zip(asked, outcomes, strict=True)]
