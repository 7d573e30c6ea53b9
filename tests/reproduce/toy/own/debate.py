"""A method of the user's own."""


class Own:
    rounds = 2
