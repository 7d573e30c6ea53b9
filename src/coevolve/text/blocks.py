"""The blocks that prompts show: discussions, solutions of several agents, critiques.

Full and compact prompts share one form, so parsers and models see the same marks everywhere.
"""

from collections.abc import Iterable, Sequence


def discussion(rounds: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Write (solution, evaluations) rounds the way CoMAS shows the history (section 3.1)."""
    lines = []
    for solution, evaluations in rounds:
        lines.append(f"<solution>{solution}</solution>")
        for evaluation in evaluations:
            lines.append(f"<evaluation>{evaluation}</evaluation>")
    return "\n".join(lines)


def solutions(texts: Sequence[str]) -> str:
    """Number the agents' solutions from 0, as CoNL's rankings and critiques refer to them."""
    lines = []
    for agent, text in enumerate(texts):
        lines.append(f"Agent {agent}<solution>{text}</solution>")
    return "\n".join(lines)


def critiques(texts: Iterable[str]) -> str:
    """List the critiques that an agent received in CoNL's second round."""
    lines = []
    for text in texts:
        lines.append(f"<critique>{text}</critique>")
    return "\n".join(lines)
