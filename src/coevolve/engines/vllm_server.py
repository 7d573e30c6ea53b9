"""vLLM on GPUs of its own, as a server that gets the learner's weights after every update.

TRL's client speaks to it. Replies come over HTTP, weights go by NCCL from the main process.
"""

from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import PartialState

from coevolve.models import environment
from coevolve.models.policy import Policy
from coevolve.models.sampler import Completion, noise
from coevolve.rollout.engine import Engine, Ticket
from coevolve.types import Reply, Turn

# How the server is started, as error messages and docs say it.
COMMAND = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --host 127.0.0.1 --logprobs-mode processed_logprobs "
    """--weight-transfer-config '{"backend": "nccl"}'"""
)
REQUESTS_AT_ONCE = 64  # of one process; TRL's client keeps as many connections
TIMEOUT = 10.0  # seconds in which a server that is up answers a short request
SERVED_DTYPE = torch.bfloat16


class ServerFault(RuntimeError):
    """The server did not answer, or did not do what it was asked for."""


@dataclass(frozen=True)
class ServedModel:
    """What a server says of its model."""

    name: str
    context: int
    """Tokens of prompt and completion together."""


def served_model(address: str) -> ServedModel:
    """Return the model of a server; ValueError in one line if it cannot take new weights."""
    import httpx

    try:
        models = httpx.get(f"{address}/v1/models", timeout=TIMEOUT).json()["data"]
        model = ServedModel(models[0]["id"], models[0]["max_model_len"])
        workers = httpx.get(f"{address}/get_world_size", timeout=TIMEOUT)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"vllm_server {address!r} does not answer ({reason}); start it with: {COMMAND}"
        ) from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError(
            f"vllm_server {address!r} is no server of vLLM; start one with: {COMMAND}"
        ) from None
    if workers.status_code != httpx.codes.OK:
        raise ValueError(
            f"vllm_server {address!r} takes no weights; start it with: {COMMAND}"
        )
    return model


def check(address: str, model: str) -> None:
    """Raise ValueError in one line unless a server answers with this model and takes weights."""
    served = served_model(address)
    if served.name != model:
        raise ValueError(
            f"vllm_server {address!r} has the model {served.name!r}, and the run {model!r}; start "
            "it with the run's, or name it so with --served-model-name"
        )


class VLLMServer(Engine):
    """The engine of the one policy that a server of vLLM speaks for."""

    remote = True

    def __init__(
        self, address: str, policy: Policy, temperature: float, max_tokens: int
    ):
        """Join the server's group for weights, and send it the policy's.

        Raises ValueError if the server does not answer.
        """
        environment.prepare("vllm")
        from trl.generation.vllm_client import VLLMClient

        self.address = address
        self.policy = policy
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.context = min(served_model(address).context, policy.context)
        self.processes = PartialState()
        self.client = VLLMClient(base_url=address, connection_timeout=TIMEOUT)
        if self.processes.is_main_process:
            self.client.init_communicator(device=self.processes.device)
        self.pool = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="vllm")
        self.waiting: set[Future[Reply]] = set()
        # Whether the policy may have learnt since `load_weights`.
        self.is_outdated = True
        self.load_weights()

    def submit(self, turn: Turn) -> Ticket:
        """Send a turn in a thread; its noise depends only on the turn's key.

        After an error between an update and its weights, the current weights are sent first.
        Raises ValueError if the prompt leaves no room in the context.
        """
        if self.is_outdated:
            self.load_weights()
        prompt_ids = self.policy.render(turn.messages)
        if len(prompt_ids) >= self.context:
            raise ValueError(
                f"role {turn.role!r}: a prompt of {len(prompt_ids)} tokens fills the server's "
                f"context of {self.context}"
            )
        ticket = self.pool.submit(self._complete, turn, prompt_ids)
        self.waiting.add(ticket)
        return ticket

    def _complete(self, turn: Turn, prompt_ids: list[int]) -> Reply:
        """Return the server's reply to a turn. Raises ServerFault."""
        temperature, limit = turn.sampling(self.temperature, self.max_tokens)
        try:
            answer = self.client.generate(
                [prompt_ids],
                temperature=temperature,
                max_tokens=min(limit, self.context - len(prompt_ids)),
                generation_kwargs={
                    "seed": int(noise([turn.key], 1)[0, 0] * 2**31),
                    "stop_token_ids": sorted(self.policy.eos_token_ids),
                },
            )
        except Exception as error:  # TRL's client raises nothing narrower
            raise self._fault("gave no answer", error) from error
        completion = _completion(answer)
        return self.policy.reply(turn, prompt_ids, completion, temperature)

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Wait for the next replies. Raises ServerFault as soon as one request has failed."""
        finished, self.waiting = wait(self.waiting, return_when=FIRST_COMPLETED)
        if any(future.exception() for future in finished):
            self._drop_waiting()
        return [(future, future.result()) for future in finished]

    def sleep(self) -> None:
        """Note that the policy learns; the server keeps its memory, which is not the learner's."""
        self._drop_waiting()
        self.is_outdated = True

    def load_weights(self) -> None:
        """Send the policy's weights, and have the server forget what it computed with old ones.

        All processes of a run take part: none asks while weights are under way. Raises ServerFault
        if the server keeps old keys and values.
        """
        self.is_outdated = True
        self._drop_waiting()
        self.processes.wait_for_everyone()
        if self.processes.is_main_process:
            self._send_weights()
            self._forget()
        self.processes.wait_for_everyone()
        self.is_outdated = False

    def _send_weights(self) -> None:
        described = []
        for name, weights in self.policy.served_weights():
            dtype = str(SERVED_DTYPE).removeprefix("torch.")
            described.append((name, dtype, list(weights.shape)))
        rounded = (
            (name, weights.to(SERVED_DTYPE))
            for name, weights in self.policy.served_weights()
        )
        try:
            self.client.update_named_params(described, rounded)
        except Exception as error:
            raise self._fault("took no weights", error) from error

    def _forget(self) -> None:
        """Clear the cache of keys and values; TRL's client would not notice a refusal."""
        import httpx

        answer = httpx.post(f"{self.address}/reset_prefix_cache", timeout=TIMEOUT)
        if answer.status_code != httpx.codes.OK or not answer.json()["success"]:
            raise ServerFault(
                f"vllm_server {self.address!r} kept the keys and values of the old weights; "
                "start the run again, it resumes from its last checkpoint"
            )

    def _drop_waiting(self) -> None:
        """Cancel requests that nobody awaits; those that the server works on end first."""
        for future in self.waiting:
            future.cancel()
        wait(self.waiting)
        self.waiting = set()

    def _fault(self, what: str, error: Exception) -> ServerFault:
        reason = " ".join(str(error).split())[:200]
        return ServerFault(f"vllm_server {self.address!r} {what}: {reason}")

    def close(self) -> None:
        """Leave the server's group; the server goes on, with the last weights."""
        self._drop_waiting()
        self.pool.shutdown()
        self.client.close_communicator()


def _completion(answer: Mapping[str, Any]) -> Completion:
    """Return the completion in an answer of TRL's client to one prompt."""
    (token_ids,) = answer["completion_ids"]
    (candidates,) = answer["logprobs"]  # of each position, the sampled token alone
    logprobs = [sampled for (sampled,) in candidates]
    return Completion(list(token_ids), logprobs)
