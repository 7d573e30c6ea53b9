"""How lists are written into a prompt: discussions, solutions of several agents, critiques.

One form for full and compact prompts, so that parsers and models meet the same marks everywhere.
"""

from collections.abc import Iterable, Sequence


def discussion(rounds: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Write (solution, evaluations) rounds the way CoMAS shows the history (section 3.1)."""
    lines = []
    for solution, evaluations in rounds:
        lines.append(f"<solution>{solution}</solution>")
        lines += [f"<evaluation>{evaluation}</evaluation>" for evaluation in evaluations]
    return "\n".join(lines)


def solutions(texts: Sequence[str]) -> str:
    """Number the agents' solutions from 0, as CoNL's rankings and critiques refer to them."""
    return "\n".join(f"Agent {i}<solution>{text}</solution>" for i, text in enumerate(texts))


def critiques(texts: Iterable[str]) -> str:
    """List the critiques that an agent received in CoNL's second round."""
    return "\n".join(f"<critique>{text}</critique>" for text in texts)
