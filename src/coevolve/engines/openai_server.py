"""Any OpenAI-compatible endpoint as a frozen policy or judge, with retries, time-outs and costs.

Its replies carry no tokens, so it cannot be trained. A dead server raises an error and never turns
into a score.
"""

import os
import re
import warnings
from collections import Counter
from collections.abc import Container
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from coevolve.rollout.engine import Engine, Ticket
from coevolve.types import Reply, Turn

API_KEY_VARIABLES = ("COEVOLVE_API_KEY", "OPENAI_API_KEY")
TIMEOUT = 120.0  # seconds per request
CHECK_TIMEOUT = 10.0  # seconds for the list of models
WORKERS = 16  # requests at a time
# What OpenAI, Azure, LiteLLM and vLLM say of a parameter that a model does not take.
UNSUPPORTED = re.compile(
    r"unsupported|(not|n't) support|unrecogni[sz]ed|unknown|not permitted|deprecated",
    re.IGNORECASE,
)
# Newer models take their limit under the second name alone.
LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
# What a request can do without; the server then uses its default.
OPTIONAL = ("temperature", "seed")
# Without these, vLLM samples by the model's own generation_config, which may penalise repetitions
# or drop unlikely tokens. A server that knows none of them, such as OpenAI's, loses nothing.
PLAIN_SAMPLING = {"top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0}
IN_THE_BODY = ("top_k", "repetition_penalty")  # of no argument of OpenAI's client
# Where servers put the text of a model that reasons before it answers.
REASONING_FIELDS = ("reasoning_content", "reasoning")
# Errors raised by reading a response that is not of this interface.
MALFORMED_RESPONSE = (AttributeError, IndexError, TypeError, ValueError)


class ServerError(ConnectionError):
    """A server did not answer, even after the retries, or did not do what it was asked for."""


@dataclass(frozen=True)
class Answer:
    """A server's reply to a turn, and its cost."""

    reply: Reply
    costs: dict[str, int]
    """Requests (retries included), tokens_in and tokens_out, as far as the server counts them;
    and empty: 1 for a reply without text."""


class ServedPolicy(Engine):
    """A policy at an address, http://HOST/v1#MODEL, and its own engine.

    The API key is read from COEVOLVE_API_KEY or OPENAI_API_KEY.
    """

    remote = True

    def __init__(self, address: str, name: str, *, retries: int = 4):
        """Check that the server answers and has the model; raises ValueError otherwise."""
        try:
            import openai
        except ImportError:
            raise ValueError(
                f"model {address!r} is a server, which needs the package openai (extra: server)"
            ) from None
        self.name = name
        self.address, _, self.model = address.partition("#")
        if (
            not self.model or "@" in self.address
        ):  # files and error messages show the address
            raise ValueError(
                "model on a server must be http://HOST/v1#MODEL without a password; "
                f"{API_KEY_VARIABLES[0]} has a key"
            )
        self.client_error = openai.OpenAIError
        self.refusal = (openai.BadRequestError, openai.UnprocessableEntityError)
        self.client = openai.OpenAI(
            base_url=self.address,
            api_key=_api_key(),
            timeout=TIMEOUT,
            max_retries=retries,
        )
        models = self._list_models()
        if self.model not in models:
            raise ValueError(
                f"model {address!r}: the server has {', '.join(models) or 'no model'}, "
                f"not {self.model!r}"
            )
        self.pool = ThreadPoolExecutor(WORKERS, thread_name_prefix=f"server-{name}")
        self.waiting: set[Future[Answer]] = set()
        self.costs_so_far: Counter[str] = Counter(
            requests=0, tokens_in=0, tokens_out=0, empty=0
        )
        # What the model was found to refuse; later requests are without it.
        self.refused: set[str] = set()
        self.serve(1.0, 64)

    def _list_models(self) -> list[str]:
        """Return the ids of the server's models."""
        client = self.client.with_options(timeout=CHECK_TIMEOUT, max_retries=0)
        try:
            return [entry.id for entry in client.models.list()]
        except (self.client_error, *MALFORMED_RESPONSE) as error:
            raise ValueError(
                f"model '{self.address}#{self.model}': no server answers at {self.address} with an "
                f"OpenAI-compatible interface ({_one_line(error)})"
            ) from None

    def serve(self, temperature: float, max_tokens: int) -> "ServedPolicy":
        """Set the defaults of turns without a temperature or limit; return this engine."""
        self.temperature = temperature
        self.max_tokens = max_tokens
        return self

    def complete(self, turn: Turn) -> Answer:
        """Send one turn to the server; the client retries. Raises ServerError.

        A parameter that the model refuses is left out, or renamed, from then on.
        """
        requests = 0
        while True:
            request = self._request(turn)
            requests += 1
            try:
                raw_response = self.client.chat.completions.with_raw_response.create(
                    **request
                )
                answer = self._read(turn, request, raw_response.parse())
            except self.refusal as error:
                sent = request.keys() | request["extra_body"].keys()
                name = refused_parameter(str(error), error.param, sent)
                if name is None:
                    raise self._no_answer(error) from error
                self._refuse(name)
                continue
            except self.client_error as error:
                raise self._no_answer(error) from error
            except MALFORMED_RESPONSE as error:
                raise ServerError(
                    f"policy {self.name!r}: {self.address} gave an answer without a choice"
                ) from error
            answer.costs["requests"] = requests + raw_response.retries_taken
            return answer

    def _request(self, turn: Turn) -> dict[str, Any]:
        """Return the parameters of a request, without those that the model refuses."""
        # This import loads torch, which is not needed to check whether a server answers.
        from coevolve.models.sampler import noise

        temperature, limit = turn.sampling(self.temperature, self.max_tokens)
        first_name, second_name = LIMIT_NAMES
        limit_name = second_name if first_name in self.refused else first_name
        extra_body: dict[str, Any] = {}
        request: dict[str, Any] = {
            "model": self.model,
            "messages": list(turn.messages),
            "temperature": temperature,
            limit_name: limit,
            "seed": int(noise([turn.key], 1)[0, 0] * 2**31),
        }
        for name, value in PLAIN_SAMPLING.items():
            home = extra_body if name in IN_THE_BODY else request
            home[name] = value
        for name in set(self.refused):  # other threads may add to it
            request.pop(name, None)
            extra_body.pop(name, None)
        request["extra_body"] = extra_body
        return request

    def _refuse(self, name: str) -> None:
        """Remember a refused parameter, and say so if the replies depend on it.

        A server that refuses one of vLLM's own parameters gets none of them.
        """
        self.refused.add(name)
        if name in IN_THE_BODY:
            self.refused.update(IN_THE_BODY)
        if name in OPTIONAL:
            warnings.warn(
                f"policy {self.name!r}: {self.model} takes no {name} as it was sent; "
                "the server's default is used",
                stacklevel=2,
            )

    def _read(self, turn: Turn, request: dict[str, Any], response: Any) -> Answer:
        """Return the reply and the tokens of a response; warn if it is empty."""
        choice = response.choices[0]
        usage = response.usage
        text = choice.message.content or ""
        costs = {"empty": int(not text.strip())}
        if costs["empty"]:
            self._warn_of_empty_reply(choice.message)
        if usage:
            costs["tokens_in"] = usage.prompt_tokens
            costs["tokens_out"] = usage.completion_tokens
        reply = Reply(
            turn,
            text,
            finished=choice.finish_reason != "length",
            # Greedy replies count as temperature 1, as those of a policy in this process do.
            temperature=request.get("temperature") or 1.0,
        )
        return Answer(reply, costs)

    def _warn_of_empty_reply(self, message: Any) -> None:
        reasoning = ""
        for field in REASONING_FIELDS:
            reasoning = reasoning or getattr(message, field, None) or ""
        cause = getattr(message, "refusal", None) or "the server gives no reason"
        if reasoning:
            cause = "it holds reasoning alone; a larger max_tokens may leave room for an answer"
        warnings.warn(
            f"policy {self.name!r}: a reply of {self.model} has no content: {cause}",
            stacklevel=2,
        )

    def _no_answer(self, error: Exception) -> ServerError:
        return ServerError(
            f"policy {self.name!r}: {self.address} gave no answer: {_one_line(error)}"
        )

    def submit(self, turn: Turn) -> Ticket:
        """Send the turn to the server in a thread of the pool."""
        ticket = self.pool.submit(self.complete, turn)
        self.waiting.add(ticket)
        return ticket

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Wait for the next replies.

        Raises ServerError as soon as one request has failed after all its retries.
        """
        finished, self.waiting = wait(self.waiting, return_when=FIRST_COMPLETED)
        if any(future.exception() for future in finished):
            while self.waiting:
                self.waiting.pop().cancel()
        answers = [(future, future.result()) for future in finished]
        for _, answer in answers:
            self.costs_so_far.update(answer.costs)
        return [(future, answer.reply) for future, answer in answers]

    def close(self) -> None:
        """Drop queued requests; those already sent are left to finish."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def costs(self) -> dict[str, float]:
        """Return the requests and tokens used since the last call, as {"NUMBER/POLICY": value}."""
        costs: dict[str, float] = {}
        for key, value in self.costs_so_far.items():
            costs[f"{key}/{self.name}"] = value
            self.costs_so_far[key] = 0
        return costs


def refused_parameter(
    message: str, named: str | None, request: Container[str]
) -> str | None:
    """Return the parameter of a request that an error calls not supported, None for other errors.

    `named` is the parameter that the server names beside its message. Only those that a request can
    do without, or take under another name, are returned.
    """
    if not UNSUPPORTED.search(message):
        return None
    adaptable = (LIMIT_NAMES[0], *OPTIONAL, *PLAIN_SAMPLING)
    words: list[str] = [named or "", *re.findall(r"\w+", message)]
    for word in words:
        if word in adaptable and word in request:
            return word
    return None


def _api_key() -> str:
    for variable in API_KEY_VARIABLES:
        key = os.environ.get(variable)
        if key:
            return key
    return "none"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
