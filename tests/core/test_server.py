"""An OpenAI-compatible server as a frozen judge: a real HTTP server here, with real failures."""

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

SMALL = {"steps": 2, "batch_size": 3, "solves": 1, "attempts": 2, "eval_every": 0, "eval_items": 1, "max_tokens": 24}


class Judge(BaseHTTPRequestHandler):
    """Gives every chat the score 8; the server's `plan` may make it fail instead."""

    def log_message(self, *args: object) -> None:
        """Be quiet."""

    def answer(self, body: object, status: int = 200) -> None:
        data = b"<html>moved</html>" if self.server.page else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if self.server.page else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "judge-1"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(asked)
        if self.server.together:
            self.server.together.wait(10)
        if len(self.server.seen) <= self.server.failures:
            self.answer({"error": {"message": "busy"}}, 503)
            return
        choice = {"message": {"content": "<score>8</score>"}, "finish_reason": self.server.reason}
        self.answer({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    made.seen, made.failures, made.reason, made.page, made.together = [], 0, "stop", False, None
    threading.Thread(target=made.serve_forever, daemon=True).start()
    made.address = f"http://127.0.0.1:{made.server_port}/v1#judge-1"
    yield made
    made.shutdown(), made.server_close()


def turn(**fields) -> Turn:
    return Turn("judge", ({"role": "user", "content": "how good?"},), "judge", key=(0, 1, 2, 3), **fields)


def test_a_reply_has_text_and_costs_but_no_tokens(server):
    engine = ServedPolicy(server.address, "judge").serve(0.5, 20)
    engine.submit(turn()), engine.submit(turn(temperature=0.0, max_tokens=5))
    replies = []
    while len(replies) < 2:
        replies += engine.poll()
    assert {reply.text for _, reply in replies} == {"<score>8</score>"}
    assert all(reply.completion_ids == () and reply.finished for _, reply in replies)
    assert engine.costs() == {"requests/judge": 2, "tokens_in/judge": 14, "tokens_out/judge": 6}
    assert not any(engine.costs().values()), "since the last call"
    settings = sorted((asked["temperature"], asked["max_tokens"]) for asked in server.seen)
    assert settings == [(0.0, 5), (0.5, 20)] and server.seen[0]["seed"] == server.seen[1]["seed"]
    assert server.seen[0]["messages"] == [{"role": "user", "content": "how good?"}]


def test_a_busy_server_is_asked_again_and_a_dead_one_raises(server):
    server.failures, server.reason = 2, "length"
    engine = ServedPolicy(server.address, "judge").serve(0.5, 20)
    engine.submit(turn())
    ((_, reply),) = engine.poll()
    assert reply.text == "<score>8</score>" and not reply.finished, "cut off"
    assert engine.costs()["requests/judge"] == len(server.seen) == 3, "retries are counted"
    server.failures = 10**6
    with pytest.raises(ServerError, match="policy 'judge': http://.*gave no answer: .*busy"):
        ServedPolicy(server.address, "judge", retries=1).answer([turn(), turn()])


def test_what_is_no_interface_is_one_line_before_a_run_and_on_the_way(server):
    judge = ServedPolicy(server.address, "judge")
    server.page = True
    with pytest.raises(ServerError, match="policy 'judge': http://.*gave an answer without a choice"):
        judge.answer([turn()])
    with pytest.raises(ValueError, match="^model '.*': no server answers at http://.*/v1 with an OpenAI-"):
        ServedPolicy(server.address, "judge")


def test_as_many_requests_as_are_set_run_side_by_side_and_one_that_hangs_is_given_up(server, monkeypatch):
    server.together = threading.Barrier(3)  # an answer comes only when three are there at once
    monkeypatch.setattr("coevolve.engines.openai_server.WORKERS", 3)
    replies = ServedPolicy(server.address, "judge").answer([turn()] * 6)
    assert [reply.text for reply in replies] == ["<score>8</score>"] * 6
    monkeypatch.setattr("coevolve.engines.openai_server.TIMEOUT", 0.2)
    with pytest.raises(ServerError, match="gave no answer: Request timed out"):
        (judge := ServedPolicy(server.address, "judge", retries=0)).answer([turn()])
    server.together.abort(), judge.close()
    assert judge.pool._shutdown, "nobody waits for what is still asked"


ADDRESSES = [  # what is written for what, and the line
    ("#judge-1", "#nope", "the server has judge-1, not 'nope'"),
    ("#judge-1", "#", "must be http://HOST/v1#MODEL without a password"),
    ("http://", "http://me:secret@", "must be http://HOST/v1#MODEL without a password"),
    (":{port}", ":1", "no server answers at http://127.0.0.1:1/v1"),
]


@pytest.mark.parametrize(("old", "new", "said"), ADDRESSES)
def test_a_wrong_address_is_one_line_before_anything_starts(server, old, new, said):
    with pytest.raises(ValueError) as error:
        load_policy(server.address.replace(old.format(port=server.server_port), new), "judge")
    assert said in str(error.value) and "\n" not in str(error.value) and "secret" not in str(error.value)


def test_a_server_cannot_be_trained(server):
    with pytest.raises(ValueError, match="model of 'shared' is a server, which cannot be trained"):
        PolicySet({"shared": server.address}, ("shared",))


def test_mae_runs_with_a_judge_at_an_address_and_pays_by_its_scores(server, tmp_path):
    run = config.build("mae", "quick", out=tmp_path / "run", overrides=SMALL | {"judge_model": server.address})
    out = train(run)
    asked = [seen["messages"][-1]["content"] for seen in server.seen]
    assert asked and all(text.startswith("judge<question>") for text in asked)
    metrics = record.read(out).query("step > 0")
    assert len(metrics) == 2 and all(metrics["requests/judge"]), "each step has its own costs"
    assert metrics["requests/judge"].sum() == len(asked) and metrics["tokens_in/judge"].sum() == 7 * len(asked)
    samples = [sample for samples in record.read(out, "episodes")["samples"] for sample in samples]
    assert {sample["policy"] for sample in samples} == {"shared"}, "what the server said is not trained on"
    solved = [s for s in samples if s["role"] == "solver" and s["text"].count("</answer>") == 1]
    assert solved and all(s["reward"] == pytest.approx((7 / 9 + 1) / 2) for s in solved)


def test_a_judge_that_dies_stops_the_run_and_leaves_what_was_written(server, tmp_path, capsys):
    overrides = SMALL | {"judge_model": server.address, "steps": 3, "save_every": 1}
    train(config.build("mae", "quick", out=tmp_path / "run", overrides=overrides | {"steps": 1}))
    server.failures = 10**6
    with pytest.raises(ServerError, match="gave no answer"):
        train(config.build("mae", "quick", out=tmp_path / "run", overrides=overrides))
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2, "the look before step 1, and step 1"
    assert list((tmp_path / "run" / "checkpoints").glob("step-00000001*"))
    fields = [f"{name}={value}" for name, value in overrides.items()]
    assert main(["train", "mae", "--out", str(tmp_path / "run"), *fields]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("coevolve: policy 'judge'") and said.endswith("goes on from the last checkpoint")


def test_who_is_ready_does_not_wait_for_a_server():
    slow, quick = (BatchedEngine(lambda turns, name=name: [Reply(t, name) for t in turns]) for name in ("slow", "quick"))
    slow.remote, slow.poll = True, Mock(wraps=slow.poll)
    switch = EngineRouter({"judge": slow, "shared": quick})
    first, second = switch.submit(turn()), switch.submit(Turn("solver", ()))
    assert [(ticket, reply.text) for ticket, reply in switch.poll()] == [(second, "quick")] and not slow.poll.called
    assert [(ticket, reply.text) for ticket, reply in switch.poll()] == [(first, "slow")]
    assert switch.costs() == {} and switch.poll() == []
    switch.sleep(), switch.load_weights(), switch.close()
    with pytest.raises(ValueError, match=r"policy of a turn must be one of judge, shared, got 'other'"):
        switch.submit(Turn("x", (), "other"))
