"""What a user may set where a method trains with a trainer of its own, as SFT and SRLM do."""

from collections.abc import Iterable

from coevolve.methods.base import Method

# Fields of a run that decide what such a trainer learns.
READ = ("lora", "learning_rate", "weight_decay", "grad_clip")


def check_fields(name: str, cls: type[Method], given: Iterable[str]) -> None:
    """Raise ValueError in one line if a user sets a field that a method does not read.

    Presets may set it: they are for many methods.
    """
    for field in given:
        if field in cls.unread:
            own = [
                other for other in cls.model_fields if other not in Method.model_fields
            ]
            raise ValueError(
                f"{field} must be left out for {name}, which has a trainer of its own; that reads "
                f"{', '.join([*READ, *own])}"
            )
