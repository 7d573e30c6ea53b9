"""Any OpenAI-compatible endpoint as a frozen policy or judge: threads, time-outs, bounded retries, costs.

Its replies carry no tokens, so it can never be trained. A dead server raises; it never becomes a score.
"""

import os
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from coevolve.rollout.engine import Engine, Ticket
from coevolve.types import Reply, Turn

KEYS = ("COEVOLVE_API_KEY", "OPENAI_API_KEY")
TIMEOUT, WORKERS = 120.0, 16  # seconds a request, requests at a time
MALFORMED = (AttributeError, IndexError, TypeError, ValueError)  # what reading an answer of another interface raises


class ServerError(ConnectionError):
    """The server did not answer, even after the retries."""


class ServedPolicy(Engine):
    """A policy at an address, http://HOST/v1#MODEL, and the engine that asks there: replies come as they finish.

    The key is taken from COEVOLVE_API_KEY or OPENAI_API_KEY.
    """

    remote = True

    def __init__(self, address: str, name: str, *, retries: int = 4):
        """Check that the server answers and has the model; ValueError in one line where not."""
        try:
            import openai
        except ImportError:
            raise ValueError(f"model {address!r} is a server, which needs the package openai (extra: server)") from None
        self.name, (self.address, _, self.model) = name, address.partition("#")
        if not self.model or "@" in self.address:  # the address goes into files and error messages
            raise ValueError(f"model on a server must be http://HOST/v1#MODEL without a password; {KEYS[0]} has a key")
        key = next((os.environ[name] for name in KEYS if os.environ.get(name)), "none")
        self.errors = openai.OpenAIError
        self.client = openai.OpenAI(base_url=self.address, api_key=key, timeout=TIMEOUT, max_retries=retries)
        try:
            known = [entry.id for entry in self.client.with_options(timeout=10, max_retries=0).models.list()]
        except (openai.OpenAIError, *MALFORMED) as error:
            why = f"no server answers at {self.address} with an OpenAI-compatible interface ({_line(error)})"
            raise ValueError(f"model {address!r}: {why}") from None
        if self.model not in known:
            raise ValueError(f"model {address!r}: the server has {', '.join(known) or 'no model'}, not {self.model!r}")
        self.pool = ThreadPoolExecutor(WORKERS, thread_name_prefix=f"server-{name}")
        self.waiting: set[Future[tuple[Reply, dict[str, int]]]] = set()
        self.used: Counter[str] = Counter(requests=0, tokens_in=0, tokens_out=0)
        self.serve(1.0, 64)

    def serve(self, temperature: float, max_tokens: int) -> "ServedPolicy":
        """Take the temperature and limit of turns that have none of their own; return this engine."""
        self.temperature, self.max_tokens = temperature, max_tokens
        return self

    def complete(self, turn: Turn) -> tuple[Reply, dict[str, int]]:
        """Ask once (the client retries); return the reply and what it cost, retries included. Raises ServerError."""
        from coevolve.models.sampler import noise  # loads torch, which asking whether a server is there does not need

        heat, limit = turn.sampling(self.temperature, self.max_tokens)
        seed = int(noise([turn.key], 1)[0, 0] * 2**31)
        ask = self.client.chat.completions.with_raw_response.create
        messages: Any = list(turn.messages)
        try:
            came = ask(model=self.model, messages=messages, temperature=heat, max_tokens=limit, seed=seed)
            said = came.parse()
            choice, usage = said.choices[0], said.usage
            text, finished = choice.message.content or "", choice.finish_reason != "length"
        except self.errors as error:
            raise ServerError(f"policy {self.name!r}: {self.address} gave no answer: {_line(error)}") from error
        except MALFORMED as error:
            raise ServerError(f"policy {self.name!r}: {self.address} gave an answer without a choice") from error
        cost = {"requests": 1 + came.retries_taken}
        if usage:
            cost |= {"tokens_in": usage.prompt_tokens, "tokens_out": usage.completion_tokens}
        return Reply(turn, text, finished=finished, temperature=heat or 1.0), cost

    def submit(self, turn: Turn) -> Ticket:
        """Ask in a thread of its own."""
        ticket = self.pool.submit(self.complete, turn)
        self.waiting.add(ticket)
        return ticket

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Wait for the next replies; raises ServerError as soon as one request has failed for good."""
        finished, self.waiting = wait(self.waiting, return_when=FIRST_COMPLETED)
        if any(future.exception() for future in finished):
            while self.waiting:
                self.waiting.pop().cancel()
        done = [(future, *future.result()) for future in finished]
        for _, _, cost in done:
            self.used.update(cost)
        return [(future, reply) for future, reply, _ in done]

    def close(self) -> None:
        """Ask nothing that still waits; what is being asked ends by itself."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def costs(self) -> dict[str, float]:
        """Return the requests and tokens used since the last call, as NUMBER/POLICY."""
        used: dict[str, float] = {f"{key}/{self.name}": value for key, value in self.used.items()}
        self.used = Counter(dict.fromkeys(self.used, 0))
        return used


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
