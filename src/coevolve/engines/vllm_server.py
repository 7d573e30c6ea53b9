"""vLLM on GPUs of its own, as a server that gets the learner's weights after every update.

TRL's client asks for replies over HTTP and joins the server's group. The main process then sends
the weights to that group by NCCL.
"""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import PartialState

from coevolve.engines.openai_server import ServerError
from coevolve.models import environment
from coevolve.models.policy import Policy
from coevolve.models.sampler import Completion, noise
from coevolve.rollout.engine import Engine, Ticket
from coevolve.types import Reply, Turn

BACKEND = "nccl"  # by which weights are sent
LOGPROBS = "processed_logprobs"  # at the temperature of the request
# How the server is started, as error messages say it.
COMMAND = (
    f"VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --host 127.0.0.1 --logprobs-mode {LOGPROBS} "
    f"""--weight-transfer-config '{{"backend": "{BACKEND}"}}'"""
)
REQUESTS_AT_ONCE = 64  # of one process; TRL's client keeps as many connections
TIMEOUT = 10.0  # seconds in which a server that is up answers a short request
INFO_TIMEOUT = 60.0  # vLLM describes the whole machine with its settings
UPDATE_TIMEOUT = 600.0  # for all weights
SERVED_DTYPE = torch.bfloat16
RESTART = (
    "start the server again, and then the run, which resumes from its last checkpoint"
)


@dataclass(frozen=True)
class ServedModel:
    """What a server says of its model."""

    name: str
    context: int
    """Tokens of prompt and completion together."""


def served_model(address: str) -> ServedModel:
    """Return the model of a server; ValueError in one line if it is not as COMMAND starts it."""
    import httpx

    try:
        models = httpx.get(f"{address}/v1/models", timeout=TIMEOUT).json()["data"]
        model = ServedModel(models[0]["id"], models[0]["max_model_len"])
        url = f"{address}/server_info?config_format=json"
        info = httpx.get(url, timeout=INFO_TIMEOUT)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"vllm_server {address!r} does not answer ({reason}); start it with: {COMMAND}"
        ) from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError(
            f"vllm_server {address!r} is no open server of vLLM; start one with: {COMMAND}"
        ) from None
    if info.status_code != httpx.codes.OK:
        raise ValueError(
            f"vllm_server {address!r} is not in the mode for training; start it with: {COMMAND}"
        )
    settings = info.json()["vllm_config"]
    transfer = settings["weight_transfer_config"] or {}
    if transfer.get("backend") != BACKEND:
        raise ValueError(
            f"vllm_server {address!r} takes no weights by {BACKEND}; start it with: {COMMAND}"
        )
    logprobs = settings["model_config"]["logprobs_mode"]
    if logprobs != LOGPROBS:
        raise ValueError(
            f"vllm_server {address!r} gives {logprobs}, which ignore the temperature; start it "
            f"with: {COMMAND}"
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
        self._join()
        self.pool = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="vllm")
        self.waiting: set[Future[Reply]] = set()
        # Whether the policy may have learnt since `load_weights`.
        self.is_outdated = True
        try:
            self.load_weights()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        """Make a group of this process and the server's; only the main process sends weights."""
        if not self.processes.is_main_process:
            return
        try:
            self.client.init_communicator(device=self.processes.device)
        except Exception as error:  # TRL's client raises nothing narrower
            raise self._fault("could not be joined", error) from error

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
        """Return the server's reply to a turn. Raises ServerError."""
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
        """Wait for the next replies. Raises ServerError as soon as one request has failed."""
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

        All processes of a run take part: none asks while weights are under way. Raises ServerError
        if an update fails, or if the server keeps old keys and values.
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
        """Send all weights; an error on either side ends the wait for the other."""
        dtype = str(SERVED_DTYPE).removeprefix("torch.")
        names = []
        shapes = []
        for name, shape in self.policy.served_shapes():
            names.append(name)
            shapes.append(list(shape))
        described = {
            "names": names,
            "dtype_names": [dtype] * len(names),
            "shapes": shapes,
        }
        update = {"update_info": described}
        if torch.cuda.is_available():  # vLLM reads the weights on other streams
            torch.cuda.current_stream().synchronize()
        self._post("start_weight_update", {})
        answers: list[ServerError | None] = []

        def receive() -> None:
            """Have the server take the weights, which ends when it has them all."""
            try:
                self._post("update_weights", update)
                answers.append(None)
            except ServerError as fault:
                answers.append(fault)

        # The server waits for the weights while it handles the request. After an error here, that
        # may be for ever, and must not keep this process from ending.
        receiving = threading.Thread(target=receive, daemon=True)
        receiving.start()
        try:
            broadcast(self._rounded_weights(), self.client.communicator)
        except Exception as error:
            raise self._fault("got a part of the weights", error) from error
        receiving.join(UPDATE_TIMEOUT)
        fault = answers[0] if answers else self._fault("did not take all weights", None)
        if fault:
            raise fault
        self._post("finish_weight_update", {})

    def _rounded_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, weights in self.policy.served_weights():
            yield name, weights.to(SERVED_DTYPE)

    def _forget(self) -> None:
        """Clear the cache of keys and values; TRL's client would not notice a refusal."""
        answer = self._post("reset_prefix_cache", {})
        if not answer.get("success"):
            raise self._fault("kept the keys and values of the old weights", None)

    def _post(self, route: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the server once; raises ServerError. A second update would not find its start."""
        import httpx

        try:
            url = f"{self.address}/{route}"
            answer = httpx.post(url, json=content, timeout=UPDATE_TIMEOUT)
            answer.raise_for_status()
            result: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._fault(f"refused {route}", error) from error
        return result

    def _drop_waiting(self) -> None:
        """Cancel requests that nobody awaits; those that the server works on end first."""
        for future in self.waiting:
            future.cancel()
        wait(self.waiting)
        self.waiting = set()

    def _fault(self, what: str, error: Exception | None) -> ServerError:
        reason = "" if error is None else f" ({' '.join(str(error).split())[:200]})"
        return ServerError(f"vllm_server {self.address!r} {what}{reason}; {RESTART}")

    def close(self) -> None:
        """Leave the server's group; the server goes on, with the last weights."""
        self._drop_waiting()
        self.pool.shutdown()
        self.client.close_communicator()


def broadcast(weights: Iterator[tuple[str, torch.Tensor]], group: Any) -> None:
    """Send weights to the workers of a server, which is in the group; packed, as TRL joined it."""
    from vllm.distributed.weight_transfer import packed_tensor

    packed_tensor.packed_nccl_broadcast_producer(
        iterator=weights, group=group, src=0, post_iter_func=lambda named: named[1]
    )


def _completion(answer: Mapping[str, Any]) -> Completion:
    """Return the completion in an answer of TRL's client to one prompt."""
    (token_ids,) = answer["completion_ids"]
    (candidates,) = answer["logprobs"]  # of each position, the sampled token alone
    logprobs = [sampled for (sampled,) in candidates]
    return Completion(list(token_ids), logprobs)
