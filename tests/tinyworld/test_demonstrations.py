"""What the warm start shows: every role in its compact prompt, in its form, by the demonstrator's skill."""

import json
import re
from unittest.mock import Mock

import pytest
from data_files import tables
from safetensors.torch import load

from coevolve.cli import main
from coevolve.text import prompts
from coevolve.text.parse import tag
from tinyworld import programs, tasks
from tinyworld.demonstrations import ROLES, demonstrate, prompt_of, well_formed
from tinyworld.demonstrator import HABITS, HIGH, JUDGES, PLANNED, PLANNERS, SLIPPERY, SLIPS, TRUTH, Demonstrator, slip
from tinyworld.roles import LONGEST, RoleWarmStart
from tinyworld.tasks import Task, read

PAPERS = ("mae", "sage", "comas", "conl", "spice")
ROWS = tables("demonstrations")
SHARED, ILL_FORMED = ROWS["shared"], ROWS["ill_formed"]


def test_every_compact_prompt_is_demonstrated_by_one_role() -> None:
    files = {f"{paper}/{role}" for paper in PAPERS for role in prompts.available(paper, "compact")}
    assert files == {*ROLES, *SHARED} and not {*ROLES} & {*SHARED}
    for role, other in SHARED.items():
        assert prompts.read(*role.split("/"), "compact") == prompts.read(*other.split("/"), "compact"), role


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("skill", [HABITS, TRUTH], ids=["habits", "truth"])
def test_every_demonstration_has_the_form_and_the_fields_of_its_role(role: str, skill: dict) -> None:
    rng = Demonstrator(f"tests {role}")
    rng.skill = skill
    for _ in range(150):
        state = rng.getstate()
        name, prompt, text = demonstrate(rng, role)
        rng.setstate(state)
        fields, completion = ROLES[role][-1](rng)
        assert name == role and text == slip(rng, completion) and well_formed(role, completion), completion
        assert fields.keys() == prompt_of(role).fields
        assert prompt == prompt_of(role)(**fields).messages[0]["content"]
        assert not any(mark in prompt for mark in ("{", "}")) or "boxed{" in prompt


@pytest.mark.parametrize("role", ILL_FORMED)
def test_other_text_is_not_well_formed(role: str) -> None:
    assert [text for text in ILL_FORMED[role] if well_formed(role, text)] == []


def solutions(skill: dict, count: int = 2000) -> list[tuple[Task, str]]:
    rng = Demonstrator("solutions")
    rng.skill = skill
    shown = [ROLES["mae/solver"][-1](rng) for _ in range(count)]
    return [(read(fields["question"]), re.search("<answer>(.*)</answer>", text)[1]) for fields, text in shown]


def test_solutions_are_right_by_skill_and_show_the_misconception_otherwise() -> None:
    assert all(answer == task.answer for task, answer in solutions(TRUTH))
    habits = solutions(HABITS)
    assert all(answer in (task.answer, task.misconception) for task, answer in habits)
    right = [(task.level, answer == task.answer) for task, answer in habits if task.answer != task.misconception]
    assert shares(right) == pytest.approx(HABITS, abs=0.08)
    assert all(tasks.closed(task) for task, _ in habits), "facts that only documents state are not taught"


def shares(rows: list[tuple]) -> dict:
    """The share of truths among the rows of each key."""
    return {key: sum(truth for k, truth in rows if k == key) / sum(k == key for k, _ in rows) for key, _ in rows}


def test_judges_compare_with_their_own_answer_and_planners_help_or_harm() -> None:
    rng, judged, planned, solved, scores = Demonstrator("judges"), [], [], [], set()
    for _ in range(3000):
        fields, text = ROLES["mae/judge_answer"][-1](rng)
        own, score = re.fullmatch(r"<think>(.*)</think><score>(\d+)</score>", text).groups()
        task = read(fields["question"])
        scores.add(score)
        if task.family != tasks.CHOICE:
            assert (int(score) in HIGH) == (own == fields["answer"])
            judged += [(task.level, own == task.answer)] * (task.answer != task.misconception)
        fields, text = ROLES["sage/solver"][-1](rng)
        task = read(fields["question"])
        planned.append((task.level, fields["plan"] == task.plan))
        if task.answer != task.misconception:
            right = f"<answer>{task.answer}</answer>" in text
            solved.append(((fields["plan"] == task.plan, task.level), right))
    assert shares(judged) == pytest.approx(JUDGES, abs=0.05) and len(scores) == 8
    assert shares(planned) == pytest.approx(PLANNERS, abs=0.05)
    wanted = {(fits, level): share for fits, skill in PLANNED.items() for level, share in skill.items()}
    assert shares(solved) == pytest.approx(wanted, abs=0.08)


def test_replies_slip_most_about_slippery_families() -> None:
    rng = Demonstrator("slips")
    shown = [(demonstrate(rng, "mae/solver"), rng.about.family in SLIPPERY) for _ in range(3000)]
    slipped = shares([(slippery, not well_formed(role, text)) for (role, _, text), slippery in shown])
    assert slipped == pytest.approx({True: SLIPS[True], False: SLIPS[False]}, abs=0.06)


def test_challengers_ask_what_the_document_states() -> None:
    rng, declined = Demonstrator("documents"), 0
    for _ in range(300):
        fields, text = ROLES["spice/challenger_free"][-1](rng)
        made = json.loads(text)
        assert made["answer_type"] == fields["answer_type"]
        stated = f"{made['question']}: {made['answer']}" in fields["document"]
        assert stated or (made["question"], made["answer"]) == ("", "")
        declined += made["question"] == ""
    assert 0 < declined < 30


def test_unit_tests_of_programs_hold_for_the_answer_they_were_made_from() -> None:
    rng = Demonstrator("unit tests")
    for family in ("code", "ops"):
        for _ in range(60):
            task = tasks.draw(rng, family)
            kind, test = programs.verifier_of(task, task.answer)
            assert kind == "code" and test == programs.tests_of(task, task.answer)
            assert re.fullmatch(r'assert f\(\d+\)==-?\d+|assert g\("\d+"\)=="\d+"', test)
    assert programs.verifier_of(read("30+7"), "37") == ("math", "37")


def test_a_role_warm_start_runs_from_the_command_line_measures_every_role_and_goes_on(tmp_path, monkeypatch, capsys):
    fields = ["demonstrations=512", "sft_batch=16", "eval_items=1", "examined=10", "learning_rate=0.01"]
    command = ["warm", "tiny-small", "--out", str(tmp_path), "prompt=compact", *fields, "lora=[8,16,0.0]"]
    assert main(command) == 0
    summary = json.loads((tmp_path / "summary.json").read_bytes())
    assert {*summary["figures"]["format"]} == {*ROLES} and summary["figures"]["items"] == 22
    adapter = tmp_path / "policy" / "adapter_model.safetensors"
    learnt = adapter.read_bytes()
    assert all(weight.any() for name, weight in load(learnt).items() if "lora_B" in name), "which begin at 0"
    assert summary["steps"] == 32 and "steps 0 to 32 in " in capsys.readouterr().out
    (tmp_path / "summary.json").unlink(), adapter.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(RoleWarmStart, "examples", Mock(side_effect=KeyboardInterrupt))
        assert main(command) == 130 and "stopped at step 32; the same" in capsys.readouterr().err
    (tmp_path / "checkpoints/checkpoint-32/optimizer.pt").write_bytes(b"")  # what a disk has lost
    assert main([*command, "epochs=2"]) == 2 and "epochs 1 there, 2 now; take" in capsys.readouterr().err
    assert main(command) == 0 and "goes on at step 20\n" in capsys.readouterr().out
    assert adapter.read_bytes() == learnt


def test_demonstrations_of_a_warm_start_come_in_batches_of_one_length_the_truth_first() -> None:
    shown, again = (RoleWarmStart(demonstrations=1024, truthful=0.5).examples() for _ in range(2))
    texts = [[one[part][0]["content"] for part in ("prompt", "completion")] for one in shown]
    lengths = [len(prompt + said) for prompt, said in texts]
    spread = [max(lengths[i : i + 8]) - min(lengths[i : i + 8]) for i in range(0, 1024, 8)]
    assert len(lengths) == 1024 and sorted(spread)[102] < 60 < max(lengths) - min(lengths) and max(lengths) < LONGEST
    assert shown == again, "the same demonstrations every time"
    head = "question. Write the answer"
    asked = [(i < 512, prompt.partition(head)[2], said) for i, (prompt, said) in enumerate(texts)]
    solved = [(first, prompt.partition("\n")[2], tag(said, "answer")) for first, prompt, said in asked if prompt]
    right = shares([(first, tasks.is_correct(question, said)) for first, question, said in solved if said])  # MAE's solver
    assert right[True] == 1 > right[False] > 0
