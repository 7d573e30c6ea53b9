"""The methods of the toy package by name."""

METHODS = {"toy": "coevolve.toy:Toy"}
