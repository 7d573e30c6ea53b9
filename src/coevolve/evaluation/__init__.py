"""How good a policy is: inference strategies, and scores on held-out questions."""
