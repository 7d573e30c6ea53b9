"""results/play.html plays what Python plays, is of today's code, and loads nothing."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from play_in_node import (
    CLOSE,
    PAGE,
    PLAYER,
    ROOT,
    base,
    needs_node,
    page_data,
    play_in_python,
    requests,
    rewards_of,
    run_node,
    run_on,
)

from reproduce.play import page, tables, weights
from reproduce.registry import read_toml
from tinyworld import tasks

EQUAL_REPLIES = 200


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """Return the data in the committed page."""
    return page_data()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> list[Any]:
    """Return the requested episodes as JavaScript plays them."""
    return run_on(tmp_path_factory.mktemp("play"), PLAYER, data, requests())


@needs_node
class TestSameAsPython:
    """The JavaScript of the page against the package."""

    def test_episodes_are_equal_reply_by_reply(
        self, data: dict[str, Any], played: list[Any]
    ) -> None:
        compared = 0
        for request, episode in zip(requests(), played, strict=True):
            stepper = play_in_python(data, request)
            turns = []
            for reply in stepper.replies:
                prompt = reply.turn.messages[0]["content"]
                turns.append(
                    {"role": reply.turn.role, "prompt": prompt, "text": reply.text}
                )
            assert episode["turns"] == turns, request["settings"]
            compared += len(turns)
            rewards = {}
            for payment in episode["payments"]:
                if payment["reward"] is not None:
                    rewards[payment["turn"]] = payment["reward"]
            expected = pytest.approx(rewards_of(stepper), abs=CLOSE)
            assert rewards == expected, request["settings"]
        assert compared >= EQUAL_REPLIES

    def test_the_oracle_is_the_same(self, tmp_path: Path, data: dict[str, Any]) -> None:
        rng = random.Random(0)
        cases = list(questions_with_answers(rng))
        file = tmp_path / "cases.json"
        file.write_text(json.dumps({"world": data["world"], "cases": cases}))
        script = tmp_path / "oracle.mjs"
        module = (page.HERE / "world.js").as_uri()
        script.write_text(
            f"import {{ World }} from {json.dumps(module)};\n"
            'import { readFileSync } from "node:fs";\n'
            "const { world, cases } = JSON.parse(readFileSync(process.argv[2]));\n"
            "const oracle = new World(world);\n"
            "console.log(JSON.stringify(cases.map(([question, answer]) => [\n"
            "  oracle.read(question)?.answer ?? null, oracle.isCorrect(question, answer),\n"
            "  oracle.heldOut(question)])));\n"
        )
        verdicts = json.loads(run_node(str(script), str(file)))
        for (question, answer), verdict in zip(cases, verdicts, strict=True):
            task = tasks.read(question)
            expected = [
                task.answer if task else None,
                tasks.is_correct(question, answer) if task else None,
                tasks.split(question) != "train",
            ]
            assert verdict == expected, (question, answer)

    def test_an_address_may_ask_the_audience_to_guess_first(
        self, tmp_path: Path
    ) -> None:
        script = tmp_path / "address.mjs"
        module = (page.HERE / "controls.js").as_uri()
        addresses = ["#sage/5/0.5/after/step", "#sage/5/0.5/after"]
        script.write_text(
            f"import {{ readAddress, writeAddress }} from {json.dumps(module)};\n"
            f"const read = {json.dumps(addresses)}.map(readAddress);\n"
            "console.log(JSON.stringify({ read, written: read.map(writeAddress) }));\n"
        )
        result = json.loads(run_node(str(script)))
        lecture, usual = result["read"]
        assert lecture["seed"] == 5
        assert lecture["isTrained"]
        assert lecture["isGuessed"]
        assert usual == lecture | {"isGuessed": False}
        assert result["written"] == addresses

    def test_the_joined_script_parses(self, tmp_path: Path) -> None:
        script = tmp_path / "page.mjs"
        script.write_text(page.script(), encoding="utf-8")
        run_node("--check", str(script))


def questions_with_answers(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield questions of every family and spoilt ones, each with some answer."""
    for family in tasks.NAMES:
        for _ in range(30):
            task = tasks.draw(rng, family)
            yield task.question, task.answer
            yield task.question, task.misconception
            yield task.question, tasks.wrong(rng, task)
            yield tasks.spoil(rng, task.question), task.answer


class TestThePage:
    """The committed file."""

    def test_it_is_of_todays_code(self, data: dict[str, Any]) -> None:
        packed = {key: data[key] for key in ("weights", "runs")}
        today = page.render(page.data(packed))
        assert PAGE.read_text(encoding="utf-8") == today, "run python -m reproduce.play"

    def test_its_untrained_model_is_the_embedded_one(
        self, data: dict[str, Any]
    ) -> None:
        unpacked = weights.unpack_base(data["weights"]["base"], data["model"]["shapes"])
        for name, values in base().items():
            assert (unpacked[name] == values).all(), name

    def test_it_loads_nothing(self) -> None:
        text = PAGE.read_text(encoding="utf-8")
        markup = page.DATA.sub("", text)
        assert not re.findall(
            r"https?://|\bfetch\(|XMLHttpRequest|\bimport\b *[({\"']", markup
        )
        assert len(text.encode()) < 3_000_000

    def test_the_program_and_the_untrained_model_come_before_the_trained_ones(
        self,
    ) -> None:
        text = PAGE.read_text(encoding="utf-8")
        program = text.index('<script type="module" async>')
        untrained = text.index('<script type="application/json" id="base">')
        trained = text.index('<script type="application/json" id="trained">')
        assert program < untrained < trained
        # What a visitor waits for before the page can be used.
        assert program + len(page.script()) < 320_000

    def test_a_page_without_its_weights_is_refused(self) -> None:
        text = PAGE.read_text(encoding="utf-8")
        start = text.index('<script type="application/json" id="base">')
        with pytest.raises(ValueError, match="must hold data, base and trained"):
            page.read_data(text[:start])

    def test_it_leads_to_the_claims_the_project_and_the_papers(
        self, data: dict[str, Any]
    ) -> None:
        links = re.findall(r'<a href="([^"#]+)"', page.TEMPLATE.read_text())
        assert len(links) == 2
        for link in links:
            assert (PAGE.parent / link).is_file(), link
        papers = read_toml(ROOT / "reproduce" / "papers.toml")
        for name in tables.methods():
            assert data["methods"][name]["paper"] == papers[name]["paper"]

    def test_every_method_has_trained_weights_and_a_gain(
        self, data: dict[str, Any]
    ) -> None:
        for name, method in tables.methods().items():
            run = data["runs"][name]
            assert run["low"] <= run["points"] <= run["high"]
            for policy in method.policies:
                assert f"{name}/{policy}" in data["weights"]["trained"]


class TestWeights:
    """Packing trained weights."""

    def test_a_change_is_rounded_to_a_fraction_of_its_row(self) -> None:
        rng = random.Random(0)
        trained = {}
        for name, values in base().items():
            trained[name] = values + rng.uniform(0.001, 0.1) * values
        packed = weights.pack_trained(base(), trained)
        unpacked = weights.unpack_trained(base(), packed)
        for name, values in base().items():
            largest = abs(trained[name] - values).max(axis=-1, keepdims=True)
            allowed = 0.51 * largest / weights.LARGEST_STEP + 1e-6
            assert (abs(unpacked[name] - trained[name]) <= allowed).all(), name
