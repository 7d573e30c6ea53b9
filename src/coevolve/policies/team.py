"""The policies of one run by name: separate models, or one LoRA adapter each on a shared base.

Knows which policies there are and which of them learn; what they say and earn is not its business.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch.nn.utils import get_total_norm
from torch.optim import AdamW, Optimizer

from coevolve import policies
from coevolve.checkpoint import load_optimizer, save_optimizer
from coevolve.policies import sharding
from coevolve.policies.adapters import AdapterPolicy, attach, base_dtype, check_four_bit, load_unsloth
from coevolve.policies.causal import Policy
from coevolve.policies.qwen2 import Decoder
from coevolve.policies.reference import Reference
from coevolve.policies.sampler import sample_together
from coevolve.policies.value import ValueHead
from coevolve.policies.zero import Zero, wanted
from coevolve.types import Reply, Turn

LARGE = 2 * 10**8  # parameters from which on layers are computed twice rather than remembered
SMALL = 10**7  # parameters up to which policies are sampled together, which takes a copy of their weights


class Team:
    """Policies that speak together; each that is trained has an optimiser of its own."""

    def __init__(
        self,
        models: Mapping[str, str],
        trained: Sequence[str],
        lora: tuple = (),
        unsloth: bool = False,
        four_bit: bool = False,
    ):
        """Load {policy: model}; with `lora` (rank, alpha, dropout) policies of one model share its weights.

        `four_bit` has Unsloth keep those in 4 bits; ValueError in one line where that cannot be.
        """
        if four_bit:
            check_four_bit()
        unknown = sorted({*trained} - {*models})
        served = [name for name in trained if str(models.get(name)).startswith("http")]
        if unknown or not trained:
            raise ValueError(f"policies to train must be among {sorted(models)}, got {list(trained)}")
        if served:
            raise ValueError(f"model of {served[0]!r} is a server, which cannot be trained: {models[served[0]]}")
        if lora and sharding.wanted():  # adapters are small, and their base is not trained
            raise ValueError("lora does not go with FSDP: launch with docs/ddp.yaml; every process has the base model")
        self.trained = tuple(trained)
        self.policies: dict[str, Policy] = {}
        for model in dict.fromkeys(models.values()):
            names = [name for name, its in models.items() if its == model]
            learners = [name for name in names if name in self.trained]
            if unsloth and learners:
                self.policies |= load_unsloth(model, learners, lora, four_bit)
            elif lora and learners:
                self.policies |= attach(policies.load(model, dtype=base_dtype()), learners, *lora, source=model)
            for name in names:
                if name not in self.policies:
                    self.policies[name] = policies.load(model, name, "" if name in self.trained else base_dtype())
        self.policies = {name: self.policies[name] for name in models}
        for name in self.trained:
            size = sum(part.numel() for part in self.policies[name].model.parameters())
            if size > LARGE and not unsloth:  # which has a way of its own
                self.policies[name].save_memory()
        self.optimizers: dict[str, Optimizer] = {}
        self.references: dict[str, Reference] = {}
        self.values: dict[str, ValueHead] = {}

    def optimize(self, learning_rate: float, weight_decay: float) -> None:
        """Give every trained policy a fresh AdamW, shared out as it was launched: with FSDP or DeepSpeed."""
        kind = Zero if wanted() else AdamW
        for name in self.trained:
            if sharding.wanted():
                self.policies[name].shard()
            parameters = sharding.groups(self.policies[name].parameters())
            self.optimizers[name] = kind(parameters, lr=learning_rate, weight_decay=weight_decay, fused=True)
        self.gather()

    def spread(self) -> None:
        """Leave every rank its part of what is sharded, to learn."""
        for shards in filter(None, (self.policies[name].shards for name in self.trained)):
            shards.spread()

    def gather(self) -> None:
        """Have all weights whole on every rank, for everything else."""
        for shards in filter(None, (self.policies[name].shards for name in self.trained)):
            shards.gather()

    def remember(self) -> None:
        """Keep every trained policy as it is now for KL penalties (with LoRA its base, at no cost)."""
        self.references = {name: Reference(self.policies[name]) for name in self.trained}

    def expect(self) -> None:
        """Give every trained policy a value head, which learns what its states are worth."""
        self.values = {name: ValueHead(self.policies[name]) for name in self.trained}

    @property
    def first(self) -> Policy:
        """The first policy that is trained (the only one of most methods)."""
        return self.policies[self.trained[0]]

    def generate(self, turns: Sequence[Turn], temperature: float = 1.0, max_tokens: int = 64) -> list[Reply]:
        """Answer turns in batches: one for all small policies of one shape, else one per policy.

        Raises ValueError naming a policy that is not in the team.
        """
        rows: dict[str, list[int]] = {}
        for row, turn in enumerate(turns):
            rows.setdefault(turn.policy, []).append(row)
        unknown = sorted(rows.keys() - self.policies.keys())
        if unknown:
            raise ValueError(f"policy of a turn must be one of {sorted(self.policies)}, got {unknown[0]!r}")
        replies: list[Reply | None] = [None] * len(turns)
        asked = {name: [turns[row] for row in its] for name, its in rows.items()}
        for name, said in self._answers(asked, temperature, max_tokens):
            for row, reply in zip(rows[name], said, strict=True):
                replies[row] = reply
        return replies

    def _answers(
        self, asked: Mapping[str, list[Turn]], temperature: float, max_tokens: int
    ) -> Iterator[tuple[str, list[Reply]]]:
        """Yield every policy's replies; small policies of one shape are sampled together, which a CPU does faster."""
        together: dict[tuple, dict[str, Decoder]] = {}
        for name, turns in asked.items():
            policy = self.policies[name]
            several = len(asked) > 1 and isinstance(policy, Policy)  # and not a server
            small = several and sum(part.numel() for part in policy.model.parameters()) <= SMALL
            decoder = policy.decoder() if small else None
            if decoder is None:
                yield name, policy.generate(turns, temperature, max_tokens)
            else:
                together.setdefault(decoder.kind, {})[name] = decoder
        for decoders in together.values():
            rows = [self.policies[name].rows(asked[name], temperature, max_tokens) for name in decoders]
            for name, its, done in zip(decoders, rows, sample_together([*decoders.values()], rows), strict=True):
                yield name, self.policies[name].replies(asked[name], its, done)

    def save(self, folder: Path) -> None:
        """Write every trained policy: a single one into the folder itself, several into folders by name."""
        for name, place in self.places(folder).items():
            self.policies[name].save(place)

    def restore(self, folder: Path) -> None:
        """Take over the weights that `save` wrote."""
        for name, place in self.places(folder).items():
            self.policies[name].restore(place)

    def optimizer_states(self) -> dict[str, dict]:
        """Return every optimiser's state, whole; every rank must ask."""
        return {name: sharding.optimizer_state(optimizer) for name, optimizer in self.optimizers.items()}

    def save_optimizers(self, folder: Path, states: Mapping[str, dict]) -> None:
        """Write one safetensors file per trained policy, of what `optimizer_states` returned."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, state in states.items():
            save_optimizer(folder / f"{name}.safetensors", state)
        for name, value in self.values.items():
            value.save(folder / f"{name}.value.safetensors")

    def restore_optimizers(self, folder: Path) -> None:
        """Restore the optimisers bit for bit."""
        for name, optimizer in self.optimizers.items():
            load_optimizer(folder / f"{name}.safetensors", optimizer)
            sharding.shard_state(optimizer)
        for name, value in self.values.items():
            value.restore(folder / f"{name}.value.safetensors")

    def places(self, folder: Path) -> dict[str, Path]:
        """The folder of each trained policy below `folder`."""
        if len(self.trained) == 1:
            return {self.trained[0]: Path(folder)}
        return {name: Path(folder) / name for name in self.trained}

    def shared(self, source: object) -> bool:
        """Whether adapters of this base are among the policies."""
        return any(isinstance(one, AdapterPolicy) and one.source == source for one in self.policies.values())

    def finite(self) -> bool:
        """Whether every trained weight is a finite number."""
        sizes = (get_total_norm(list(self.policies[name].parameters())) for name in self.trained)
        return all(size.isfinite() for size in sizes)
