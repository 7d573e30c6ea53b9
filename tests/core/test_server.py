"""An OpenAI-compatible server as a frozen judge: a real HTTP server, and its failures."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import Mock

import pytest

from coevolve.cli import main
from coevolve.engines.loading import load_policy
from coevolve.engines.openai_server import ServedPolicy, ServerError
from coevolve.engines.router import EngineRouter
from coevolve.models.policy_set import PolicySet
from coevolve.rollout.engine import BatchedEngine
from coevolve.runs import record
from coevolve.training import config
from coevolve.training.loop import train
from coevolve.types import Reply, Turn

SMALL = {
    "steps": 2,
    "batch_size": 3,
    "solves": 1,
    "attempts": 2,
    "eval_every": 0,
    "eval_items": 1,
    "max_tokens": 24,
}
QUESTION = {"role": "user", "content": "how good?"}


class Judge(BaseHTTPRequestHandler):
    """Answers every chat with the score 8; attributes of the server may make it fail instead."""

    def log_message(self, *args: object) -> None:
        """Log nothing."""

    def send(self, body: object, status: int = 200) -> None:
        data = json.dumps(body).encode()
        content_type = "application/json"
        if self.server.is_web_page:
            data = b"<html>moved</html>"
            content_type = "text/html"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.send({"data": [{"id": "judge-1"}]})

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.requests.append(json.loads(self.rfile.read(length)))
        if self.server.barrier:
            self.server.barrier.wait(10)
        if len(self.server.requests) <= self.server.failures:
            self.send({"error": {"message": "busy"}}, 503)
            return
        refusal = self.server.refuse(self.server.requests[-1])
        if refusal:
            self.send(refusal, 400)
            return
        message = self.server.message
        choice = {"message": message, "finish_reason": self.server.finish_reason}
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        self.send({"choices": [choice], "usage": usage})


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    server.requests = []
    server.failures = 0  # how many of the first requests are answered with 503
    server.finish_reason = "stop"
    server.is_web_page = False
    server.message = {"content": "<score>8</score>"}
    server.refuse = lambda request: None  # returns the body of an error 400, or None
    server.barrier = None  # where requests wait for each other
    server.address = f"http://127.0.0.1:{server.server_port}/v1#judge-1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def turn(**fields) -> Turn:
    return Turn("judge", (QUESTION,), "judge", key=(0, 1, 2, 3), **fields)


@pytest.fixture
def two_replies(server):
    """The engine, and its replies to a turn with defaults and to one with settings of its own."""
    engine = ServedPolicy(server.address, "judge").serve(0.5, 20)
    engine.submit(turn())
    engine.submit(turn(temperature=0.0, max_tokens=5))
    replies = []
    while len(replies) < 2:
        replies += [reply for _, reply in engine.poll()]
    return engine, replies


def test_a_reply_has_text_but_no_tokens(two_replies):
    _, replies = two_replies
    for reply in replies:
        assert reply.text == "<score>8</score>"
        assert reply.completion_ids == ()
        assert reply.finished


def test_costs_are_those_since_the_last_call(two_replies):
    engine, _ = two_replies
    assert engine.costs() == {
        "requests/judge": 2,
        "tokens_in/judge": 14,
        "tokens_out/judge": 6,
        "empty/judge": 0,
    }
    assert not any(engine.costs().values())


def test_a_request_holds_messages_settings_and_a_seed_from_the_key(two_replies, server):
    first, second = server.requests
    settings = {(sent["temperature"], sent["max_tokens"]) for sent in server.requests}
    assert settings == {(0.0, 5), (0.5, 20)}
    assert first["seed"] == second["seed"]
    assert first["messages"] == [QUESTION]


def test_a_busy_server_is_asked_again_and_its_retries_are_counted(server):
    server.failures = 2
    engine = ServedPolicy(server.address, "judge").serve(0.5, 20)
    (reply,) = engine.answer([turn()])
    assert reply.text == "<score>8</score>"
    assert engine.costs()["requests/judge"] == len(server.requests) == 3


def test_a_reply_that_was_cut_off_is_not_finished(server):
    server.finish_reason = "length"
    (reply,) = ServedPolicy(server.address, "judge").answer([turn()])
    assert not reply.finished


def openai_error(message, param=None):
    return {"error": {"message": message, "param": param, "code": "unsupported"}}


# What a model refuses, and how servers say so.
REFUSALS = {
    "o3": (
        "max_tokens",
        openai_error(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "max_tokens",
        ),
    ),
    "without a name beside the message": (
        "max_tokens",
        openai_error("'max_tokens' is not supported with this model."),
    ),
    "fixed temperature": (
        "temperature",
        openai_error(
            "Unsupported value: 'temperature' does not support 0.5 with this model. "
            "Only the default (1) value is supported.",
            "temperature",
        ),
    ),
    "LiteLLM": (
        "temperature",
        openai_error("gpt-5 models don't support temperature=0.5. Only 1 is possible."),
    ),
    "Azure": ("seed", openai_error("Unrecognized request argument supplied: seed")),
    "a list of faults": (
        "seed",
        openai_error(
            "[{'loc': ('body', 'seed'), 'msg': 'Extra inputs not permitted'}]"
        ),
    ),
}


@pytest.mark.parametrize(("name", "body"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.filterwarnings("ignore:policy 'judge'")
def test_a_refused_parameter_is_left_out_from_then_on(server, name, body):
    server.refuse = lambda request: body if name in request else None
    engine = ServedPolicy(server.address, "judge").serve(0.5, 20)
    for _ in range(2):
        (reply,) = engine.answer([turn()])
        assert reply.text == "<score>8</score>"
    assert [name in request for request in server.requests] == [True, False, False]
    assert engine.costs()["requests/judge"] == 3
    for request in server.requests:
        limits = (request.get("max_tokens"), request.get("max_completion_tokens"))
        assert sorted(filter(None, limits)) == [20], "one limit is sent"


def test_a_model_that_refuses_all_of_them_answers(server):
    taken = {"model", "messages", "max_completion_tokens"}

    def refuse(request):
        for name in sorted(request.keys() - taken):
            return openai_error(f"Unsupported parameter: '{name}'", name)
        return None

    server.refuse = refuse
    engine = ServedPolicy(server.address, "judge").serve(0.5, 20)
    with pytest.warns(UserWarning) as warned:
        (reply,) = engine.answer([turn()])
    assert reply.text == "<score>8</score>"
    assert reply.temperature == 1.0
    assert server.requests[-1].keys() == taken
    texts = sorted(str(warning.message) for warning in warned)
    assert texts == [
        f"policy 'judge': judge-1 takes no {name} as it was sent; "
        "the server's default is used"
        for name in ("seed", "temperature")
    ]


def test_a_judge_samples_plainly_whatever_its_generation_config_says(server):
    ServedPolicy(server.address, "judge").answer([turn()])
    (request,) = server.requests
    plain = {"top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0}
    assert request.items() >= plain.items()


def test_openai_which_knows_no_top_k_is_asked_twice_and_without_a_warning(
    server, recwarn
):
    body = openai_error("Unrecognized request argument supplied: top_k")
    server.refuse = lambda request: body if "top_k" in request else None
    engine = ServedPolicy(server.address, "judge")
    for _ in range(2):
        engine.answer([turn()])
    assert len(server.requests) == 3
    assert "repetition_penalty" not in server.requests[-1]
    assert server.requests[-1]["top_p"] == 1.0
    assert len(recwarn) == 0


@pytest.mark.filterwarnings("ignore:policy 'judge'")
def test_requests_side_by_side_find_out_together(server):
    body = openai_error("Unsupported parameter: 'max_tokens'", "max_tokens")
    server.refuse = lambda request: body if "max_tokens" in request else None
    engine = ServedPolicy(server.address, "judge").serve(0.5, 20)
    replies = engine.answer([turn()] * 12)
    assert [reply.text for reply in replies] == ["<score>8</score>"] * 12
    assert engine.costs()["requests/judge"] == len(server.requests) <= 24


OTHER_ERRORS = [
    openai_error("max_tokens is too large: 20. It must be at most 8.", "max_tokens"),
    openai_error("This model's maximum context length is 8 tokens."),
    openai_error("Unsupported parameter: 'messages'", "messages"),
    openai_error("Unsupported parameter: 'max_completion_tokens'"),
    openai_error("Unknown model"),
    {"detail": "no"},
]


@pytest.mark.parametrize("body", OTHER_ERRORS, ids=str)
def test_any_other_refusal_is_an_error_after_one_request(server, body):
    server.refuse = lambda request: body
    engine = ServedPolicy(server.address, "judge").serve(0.5, 20)
    with pytest.raises(ServerError, match="gave no answer: Error code: 400"):
        engine.answer([turn()])
    assert len(server.requests) == 1


EMPTY_MESSAGES = {
    "reasoning_content": ({"content": None, "reasoning_content": "hm"}, "reasoning"),
    "reasoning": ({"content": "", "reasoning": "hm"}, "reasoning alone"),
    "a refusal": ({"content": None, "refusal": "I cannot."}, "I cannot."),
    "nothing": ({"content": None}, "gives no reason"),
    "blanks": ({"content": " \n"}, "gives no reason"),
}


@pytest.mark.parametrize(
    ("message", "cause"), EMPTY_MESSAGES.values(), ids=EMPTY_MESSAGES
)
def test_a_reply_without_content_is_counted_and_said(server, message, cause):
    server.message = message
    engine = ServedPolicy(server.address, "judge")
    with pytest.warns(UserWarning, match=f"judge-1 has no content: .*{cause}"):
        (reply,) = engine.answer([turn()])
    assert not reply.text.strip()
    assert engine.costs()["empty/judge"] == 1


def test_reasoning_beside_an_answer_is_no_matter(server, recwarn):
    server.message = {"content": "<score>8</score>", "reasoning_content": "hm"}
    engine = ServedPolicy(server.address, "judge")
    (reply,) = engine.answer([turn()])
    assert reply.text == "<score>8</score>"
    assert engine.costs()["empty/judge"] == 0
    assert not [w for w in recwarn if "content" in str(w.message)]


@pytest.mark.filterwarnings("ignore:policy 'shared'")
def test_an_empty_reply_to_a_question_is_said(server, capsys):
    server.message = {"content": "", "reasoning": "hm"}
    arguments = ["ask", "mae/solver", "question=1", "--model", server.address]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == "\n"
    assert captured.err.splitlines()[-1] == "The reply is empty."


def test_a_dead_server_raises(server):
    judge = ServedPolicy(server.address, "judge", retries=1)
    server.failures = 10**6
    with pytest.raises(
        ServerError, match="policy 'judge': http://.*gave no answer: .*busy"
    ):
        judge.answer([turn(), turn()])


def test_a_web_page_is_no_server(server):
    server.is_web_page = True
    error = "^model '.*': no server answers at http://.*/v1 with an OpenAI-"
    with pytest.raises(ValueError, match=error):
        ServedPolicy(server.address, "judge")


def test_a_server_that_becomes_a_web_page_raises(server):
    judge = ServedPolicy(server.address, "judge")
    server.is_web_page = True
    error = "policy 'judge': http://.*gave an answer without a choice"
    with pytest.raises(ServerError, match=error):
        judge.answer([turn()])


def test_as_many_requests_as_are_set_run_side_by_side(server, monkeypatch):
    server.barrier = threading.Barrier(3)  # each request waits for two others
    monkeypatch.setattr("coevolve.engines.openai_server.WORKERS", 3)
    replies = ServedPolicy(server.address, "judge").answer([turn()] * 6)
    assert [reply.text for reply in replies] == ["<score>8</score>"] * 6


def test_a_request_that_hangs_is_given_up_and_closing_does_not_wait(
    server, monkeypatch
):
    server.barrier = threading.Barrier(3)  # the request waits for two that never come
    monkeypatch.setattr("coevolve.engines.openai_server.TIMEOUT", 0.2)
    judge = ServedPolicy(server.address, "judge", retries=0)
    with pytest.raises(ServerError, match="gave no answer: Request timed out"):
        judge.answer([turn()])
    server.barrier.abort()
    judge.close()
    assert judge.pool._shutdown


NO_MODEL = "the server has judge-1, not 'nope'"
BAD_FORM = "must be http://HOST/v1#MODEL without a password"
NO_ANSWER = "no server answers at http://127.0.0.1:1/v1"
ADDRESSES = [  # a part of the address, what replaces it, and the error
    ("#judge-1", "#nope", NO_MODEL),
    ("#judge-1", "#", BAD_FORM),
    ("http://", "http://me:secret@", BAD_FORM),
    (":{port}", ":1", NO_ANSWER),
]


@pytest.mark.parametrize(("old", "new", "message"), ADDRESSES)
def test_a_wrong_address_is_a_one_line_error_without_its_password(
    server, old, new, message
):
    address = server.address.replace(old.format(port=server.server_port), new)
    with pytest.raises(ValueError) as error:
        load_policy(address, "judge")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_a_server_cannot_be_trained(server):
    error = "model of 'shared' is a server, which cannot be trained"
    with pytest.raises(ValueError, match=error):
        PolicySet({"shared": server.address}, ("shared",))


def judged_run(server, out, **overrides):
    """A run of MAE whose judge is the server."""
    fields = {**SMALL, "judge_model": server.address, **overrides}
    return config.build("mae", "quick", out=out, overrides=fields)


def test_mae_rewards_solutions_by_the_scores_of_a_judge_at_an_address(server, tmp_path):
    out = train(judged_run(server, tmp_path / "run"))
    contents = [sent["messages"][-1]["content"] for sent in server.requests]
    assert contents
    assert all(content.startswith("judge<question>") for content in contents)

    metrics = record.read(out).query("step > 0")
    assert len(metrics) == 2
    assert all(metrics["requests/judge"]), "each step has its own costs"
    assert metrics["requests/judge"].sum() == len(contents)
    assert metrics["tokens_in/judge"].sum() == 7 * len(contents)

    samples = []
    for episode_samples in record.read(out, "episodes")["samples"]:
        samples += episode_samples
    assert {sample["policy"] for sample in samples} == {"shared"}, (
        "the judge is not trained"
    )
    solutions = [sample for sample in samples if sample["role"] == "solver"]
    answered = [
        sample for sample in solutions if sample["text"].count("</answer>") == 1
    ]
    assert answered
    for sample in answered:
        assert sample["reward"] == pytest.approx((7 / 9 + 1) / 2)


def test_a_judge_that_dies_stops_the_run_and_keeps_its_files(server, tmp_path):
    out = tmp_path / "run"
    train(judged_run(server, out, steps=1, save_every=1))
    server.failures = 10**6
    with pytest.raises(ServerError, match="gave no answer"):
        train(judged_run(server, out, steps=3, save_every=1))
    rows = (out / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 2, "the evaluation before step 1, and step 1"
    assert list((out / "checkpoints").glob("step-00000001*"))


@pytest.mark.thorough
def test_a_judge_that_dies_is_a_one_line_error_of_the_command(server, tmp_path, capsys):
    out = tmp_path / "run"
    train(judged_run(server, out, steps=1, save_every=1))
    server.failures = 10**6
    fields = {**SMALL, "judge_model": server.address, "steps": 3, "save_every": 1}
    options = [f"{name}={value}" for name, value in fields.items()]
    assert main(["train", "mae", "--out", str(out), *options]) == 1
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert last_line.startswith("coevolve: policy 'judge'")
    assert last_line.endswith("resumes later from the last checkpoint")


def batched_engine(text):
    """An engine that answers every turn with this text."""
    return BatchedEngine(lambda turns: [Reply(turn, text) for turn in turns])


def test_ready_replies_do_not_wait_for_a_server():
    slow = batched_engine("slow")
    slow.remote = True
    slow.poll = Mock(wraps=slow.poll)
    router = EngineRouter({"judge": slow, "shared": batched_engine("quick")})
    judge_ticket = router.submit(turn())
    solver_ticket = router.submit(Turn("solver", ()))

    ((ticket, reply),) = router.poll()
    assert (ticket, reply.text) == (solver_ticket, "quick")
    assert not slow.poll.called
    ((ticket, reply),) = router.poll()
    assert (ticket, reply.text) == (judge_ticket, "slow")
    assert router.poll() == []


def test_a_router_passes_on_every_call_and_refuses_unknown_policies():
    router = EngineRouter({"judge": batched_engine("a"), "shared": batched_engine("b")})
    assert router.costs() == {}
    router.sleep()
    router.load_weights()
    router.close()
    error = "policy of a turn must be one of judge, shared, got 'other'"
    with pytest.raises(ValueError, match=error):
        router.submit(Turn("x", (), "other"))
