"""The released code of the authors, called on inputs of ours.

Each class takes functions from snapshots, see `code.py`, and returns plain numbers and texts.
"""

import contextlib
import importlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.released import standins
from benchmarks.released.code import Snapshot
from benchmarks.released.replies import Batch

MAE = "ulab-uiuc/Multi-agent-evolve"
AZR = "LeapLabTHU/Absolute-Zero-Reasoner"
TTRL = "PRIME-RL/TTRL"
RZERO = "Chengsong-Huang/R-Zero"
# What they import and this environment lacks. scikit-learn has a stand-in.
MATHRULER = "hiyouga/MathRuler"
PYLATEXENC = "phfaist/pylatexenc"
W2N = "akshaynagpal/w2n"
PACKAGES = {MATHRULER: "mathruler", PYLATEXENC: "pylatexenc", W2N: "word2number"}
NLTK = "nltk/nltk"

AZR_FOLDER = "absolute_zero_reasoner"
CUSTOM_EVALUATE = f"{AZR_FOLDER}/rewards/custom_evaluate.py"
REWARD_MANAGERS = f"{AZR_FOLDER}/rewards/reward_managers.py"
CODE_REWARD = f"{AZR_FOLDER}/rewards/code_reward.py"
PARSERS = f"{AZR_FOLDER}/utils/code_utils/parsers.py"
PROMPT_MANAGER = f"{AZR_FOLDER}/utils/prompt_manager.py"
TEMPLATES = f"{AZR_FOLDER}/data_construction/initial_prompt_templates/default.json"
TTRL_SCORES = "verl/verl/utils/reward_score/ttrl"
TTRL_ALGORITHMS = "verl/verl/trainer/ppo/core_algos.py"
CALLER = "examples/reward_function/caller_penalty.py"
SERVER = "vllm_service_init/start_vllm_server.py"
RZERO_MATH = "examples/reward_function/math.py"
RZERO_ALGORITHMS = "verl/trainer/core_algos.py"

ATTEMPTS = 5  # of MAE's Solver at a proposed question
ASSISTANT = "Assistant: <think>"  # ends the prompts of Absolute Zero
DATA = {
    "AutoTokenizer": object,
    "DataProto": standins.Batch,
    "DataProtoItem": standins.Item,
    "PrettyPrinter": standins.Silent(),
    "RLHFDataset": standins.Rows,
    "collate_fn": list,
    "pad_dataproto_to_divisor": standins.not_padded,
    "unpad_dataproto": standins.not_unpadded,
}


@contextlib.contextmanager
def quietly_in(folder: Any) -> Iterator[None]:
    """Work in a folder and print nothing: the authors' code prints, and writes files."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.chdir(before)


class ReleasedMAE:
    """`GeneralIORewardManager`, with a scripted model behind it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.folder = snapshot.scratch
        evaluate = snapshot.take(CUSTOM_EVALUATE, ["extract_answer", "extract_thought"])
        templates = self.folder / "templates.json"
        templates.write_bytes(snapshot.read(TEMPLATES))
        prompts = snapshot.take(
            PROMPT_MANAGER, ["PromptManager"], PrettyPrinter=standins.Silent()
        )
        managers = snapshot.take(
            REWARD_MANAGERS,
            ["GeneralIORewardManager"],
            extract_answer=evaluate.extract_answer,
            extract_thought=evaluate.extract_thought,
            OpenAI=None,
            **DATA,
        )
        with quietly_in(self.folder):
            self.prompts = prompts.PromptManager(template_file=str(templates))
        self.manager = managers.GeneralIORewardManager(
            tokenizer=standins.TOKENIZER,
            num_examine=0,
            reward_fn_extraction_type="boxed",  # as in scripts/selfplay/mae.sh
            splitter="Assistant:",
            output_path=str(self.folder),
            generation_reward_config={},
            eval_reward_config={},
            model_name="",
            judge_with_actor=True,
            train_judge=True,
            prompt_manager=self.prompts,
            agent_output_dir=str(self.folder),
        )

    def prompt(self, role: str) -> str:
        """Return the prompt of a role: its text is part of what the format reward counts."""
        if role == "pred":
            return self.prompts.get_solver_instruction("1+1?")
        if role == "judge":
            template = self.prompts.get_judge_instruction("answer")
            return template.format(question="1+1?", answer="2")
        return self.prompts.get_proposer_instruction(
            ref=False, with_answer_generation=False
        )

    def call(
        self, role: str, texts: Sequence[str], waves: Sequence[Sequence[str]] = ()
    ) -> tuple[list[float], list[dict]]:
        """Return the rewards of a role's replies, and the data that become training data."""
        prompt = self.prompt(role)
        items = [standins.item(prompt, text, question="1+1?") for text in texts]
        with quietly_in(self.folder):
            rewards, _, valid = self.manager(
                standins.Batch.of(items),
                problem_type=f"{role}_general",
                rollout_actor_wg=standins.Actor(waves),
                n_samples=ATTEMPTS if role == "gen" else 1,
            )
        return rewards.sum(dim=-1).tolist(), valid

    def scores(self, judgements: Sequence[str]) -> list[float]:
        """Return the scores that judgements give to well-formed answers."""
        answers = ["<answer>2</answer>"] * len(judgements)
        rewards, _ = self.call("pred", answers, [judgements])
        return [2 * reward - 1 for reward in rewards]

    def formats(self, role: str, texts: Sequence[str]) -> list[float]:
        """Return the format rewards of a role's replies."""
        prompt = self.prompt(role)
        records = []
        for text in texts:
            one = standins.item(prompt, text, question="1+1?")
            record = self.manager._get_data_dict(one, role, [], "", [])
            records.append(record)
        rewards = self.manager.calc_format_reward(records, role)
        return [float(reward) for reward in rewards]

    def questions(self, proposals: Sequence[str]) -> list[str | None]:
        """Return the questions of proposals: what is added to the data if all is judged well."""
        well = [["<score>10</score>"], ["<answer>1</answer>"], ["<score>1</score>"]]
        rewards, valid = self.call("gen", proposals, well)
        added = iter(valid)
        return [next(added)["question"] if reward > 0 else None for reward in rewards]

    def proposal_rewards(self, cases: Sequence[Mapping[str, Any]]) -> list[float]:
        """Return the rewards of proposals, with the judgements of question and attempts."""
        proposals = [case["proposal"] for case in cases]
        qualities = [case["quality"] for case in cases]
        attempts = []
        for attempt in range(ATTEMPTS):
            attempts += [f"<answer>{attempt}</answer>"] * len(cases)
        judgements = []
        for case in cases:
            judgements += case["attempts"]
        rewards, _ = self.call("gen", proposals, [qualities, attempts, judgements])
        return rewards

    def solver_rewards(self, cases: Sequence[Mapping[str, str]]) -> list[float]:
        """Return the rewards of answers with their judgements."""
        answers = [case["answer"] for case in cases]
        judgements = [case["judgement"] for case in cases]
        rewards, _ = self.call("pred", answers, [judgements])
        return rewards


class ReleasedAZR:
    """Format, extraction, and `CodeIORewardManager` for the deduction of outputs."""

    GOLD = "42"

    def __init__(self, snapshot: Snapshot) -> None:
        self.folder = snapshot.scratch
        self.evaluate = snapshot.take(
            CUSTOM_EVALUATE, ["extract_answer", "extract_thought", "get_format_reward"]
        )
        parsers = snapshot.take(PARSERS, ["parse_imports"])
        code = snapshot.take(
            CODE_REWARD,
            ["parse_code_input_output", "parse_inputs_message", "parse_code_function"],
            parse_imports=parsers.parse_imports,
            # Options that the scripts leave off.
            remove_comments_and_docstrings=None,
            remove_any_not_definition_imports=None,
            remove_print_statements=None,
            has_test_input=None,
        )
        nothing = {
            "ast_edit_distance": lambda *_: 0.0,
            "get_code_complexity_reward": lambda *_: 0.0,
            "get_halstead_reward": lambda *_: 0.0,
            "get_type_counts_reward": lambda *_, **__: 0.0,
            "check_composite_function": None,
            "check_no_definitions": None,
        }
        managers = snapshot.take(
            REWARD_MANAGERS,
            ["CodeIORewardManager"],
            custom_evaluate=SimpleNamespace(get_reward=print),
            extract_answer=self.evaluate.extract_answer,
            extract_thought=self.evaluate.extract_thought,
            get_format_reward=self.evaluate.get_format_reward,
            parse_code_input_output=code.parse_code_input_output,
            parse_inputs_message=code.parse_inputs_message,
            parse_code_function=code.parse_code_function,
            instruction_following="{}",
            boxed_instruction="{}",
            get_code_problem_predictor_prompt=lambda **_: "",
            **nothing,
            **DATA,
        )
        settings = {  # as in scripts/selfplay/7b.sh
            "format_reward": True,
            "generation_accuracy_convertion": "one_minus",
            "intrinsic_combine_method": "sum",
            "f_replace_location": "any_first",
            "code_location": "first",
        }
        self.manager = managers.CodeIORewardManager(
            tokenizer=standins.TOKENIZER,
            num_examine=0,
            split="train",
            reward_fn_extraction_type="answer_conditional",
            math_metric="math_verify",
            splitter="Assistant:",
            output_path=str(self.folder),
            generation_reward_config=standins.Fields(settings),
        )

    def call(
        self,
        kind: str,
        texts: Sequence[str],
        extra: Mapping[str, Any],
        waves: Sequence[Sequence[str]] = (),
        samples: int = 1,
    ) -> list[float]:
        """Return the rewards of replies to prompts that end with an open thought."""
        items = []
        for text in texts:
            reply = text.removeprefix("<think>")
            one = standins.item(
                ASSISTANT,
                reply,
                problem="def f(x): return x",
                data_source=kind,
                extra_info=extra,
                reward_model={"ground_truth": ""},
            )
            items.append(one)
        with quietly_in(self.folder):
            rewards, *_ = self.manager(
                standins.Batch.of(items),
                problem_type=kind,
                executor=standins.Executor(),
                rollout_actor_wg=standins.Actor(waves),
                n_samples=samples,
            )
        return rewards.sum(dim=-1).tolist()

    def formats(self, texts: Sequence[str]) -> list[float]:
        """Return the format rewards of replies that go on with the prompt's open thought."""
        rewards = []
        for text in texts:
            whole = "<think>" + text.removeprefix("<think>")
            reward = self.evaluate.get_format_reward(whole, "answer_conditional")
            rewards.append(reward)
        return rewards

    def answers(self, texts: Sequence[str]) -> list[str | None]:
        """Return the extracted answers; None for an empty one."""
        extract = self.evaluate.extract_answer
        return [extract(text, "answer_conditional") or None for text in texts]

    def solver_rewards(self, texts: Sequence[str]) -> list[float]:
        """Return the rewards of answers to a task whose output is `GOLD`."""
        extra = {"input": "", "output": self.GOLD}
        return self.call("pred_code_o", texts, extra)

    def proposal_rewards(
        self, proposals: Sequence[str], solved: Sequence[int], attempts: int
    ) -> list[float]:
        """Return the rewards of proposals, so many of whose attempts were right."""
        rewards = []
        for proposal, right in zip(proposals, solved, strict=True):
            texts = ["<answer>right</answer>"] * right
            texts += ["<answer>wrong</answer>"] * (attempts - right)
            extra = {"chosen_references": [], "composite_functions": np.array([])}
            rewards += self.call("gen_code_o", [proposal], extra, [texts], attempts)
        return rewards


class ReleasedTTRL:
    """The vote of TTRL, and the advantages of the copy of verl that it ships."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.folder = snapshot.scratch
        scores = TTRL_SCORES
        normal = snapshot.take(f"{scores}/qwen/math_normalize.py", ["normalize_answer"])
        grade = snapshot.take(
            f"{scores}/qwen/math_grade.py",
            ["grade_answer"],
            normalize_answer=normal.normalize_answer,
        )
        parser = snapshot.take(f"{scores}/qwen/qwen_math_parser.py", ["extract_answer"])
        self.extract = parser.extract_answer
        qwen = snapshot.take(
            f"{scores}/qwen/qwen_eval.py",
            ["qwen_reward_fn"],
            extract_answer=parser.extract_answer,
            grade_answer=grade.grade_answer,
        )
        extract = snapshot.take(
            f"{scores}/auto_extract.py",
            ["auto_extract"],
            extract_answer=parser.extract_answer,
        )
        verify = snapshot.take(
            f"{scores}/auto_verify.py",
            ["auto_verify"],
            auto_extract=extract.auto_extract,
            qwen_reward_fn=qwen.qwen_reward_fn,
            qwen_reward_fn_gpqa=None,
            simplerl_reward_fn=None,
        )
        metrics = snapshot.take(
            f"{scores}/ttt_metrics.py",
            ["test_time_train_metrics"],
            auto_extract=extract.auto_extract,
            auto_verify=verify.auto_verify,
        )
        self.vote = metrics.test_time_train_metrics
        whiten = snapshot.take("verl/verl/utils/torch_functional.py", ["masked_whiten"])
        self.algorithms = snapshot.take(
            TTRL_ALGORITHMS,
            [
                "compute_grpo_outcome_advantage",
                "compute_reinforce_plus_plus_outcome_advantage",
            ],
            verl_F=whiten,
        )

    def answers(self, texts: Sequence[str]) -> list[str | None]:
        """Return the extracted answers; None for an empty one."""
        return [self.extract(text, "math") or None for text in texts]

    def rewards(self, group: Sequence[str]) -> list[float]:
        """Return the rewards of a group's replies for agreeing with its majority."""
        unused_labels = ["0"] * len(group)
        rewards, _ = self.vote(list(group), unused_labels)
        return rewards

    def reinforce(self, batch: Batch) -> list[float]:
        """Return the advantages of REINFORCE++, one per completion."""
        rewards, mask = padded(batch)
        function = self.algorithms.compute_reinforce_plus_plus_outcome_advantage
        advantages, _ = function(rewards, mask, gamma=1.0)
        return first_tokens(advantages)

    def grpo(self, batch: Batch) -> list[float]:
        """Return the advantages of GRPO, one per completion."""
        rewards, mask = padded(batch)
        function = self.algorithms.compute_grpo_outcome_advantage
        advantages, _ = function(rewards, mask, batch.groups)
        return first_tokens(advantages)


class ReleasedRZero:
    """Rewards of both policies of R-Zero, the vote of its server, and its GRPO."""

    def __init__(self, snapshot: Snapshot, nltk: Snapshot) -> None:
        self.folder = snapshot.scratch
        util = nltk.take("nltk/util.py", ["ngrams"])
        bleu = nltk.take(
            "nltk/translate/bleu_score.py",
            ["sentence_bleu", "SmoothingFunction"],
            ngrams=util.ngrams,
        )
        mathruler = importlib.import_module("mathruler.grader")
        grader = {
            "extract_boxed_content": mathruler.extract_boxed_content,
            "grade_answer": mathruler.grade_answer,
        }
        self.caller = snapshot.take(
            CALLER,
            ["compute_score", "cluster_share_per_problem"],
            generate_results=self.scored,
            sentence_bleu=bleu.sentence_bleu,
            SmoothingFunction=bleu.SmoothingFunction,
            AgglomerativeClustering=standins.AgglomerativeClustering,
            **grader,
        )
        self.server = snapshot.take(
            SERVER, ["hello.process_single"], stopit=standins.Stopit(), **grader
        )
        self.math = snapshot.take(RZERO_MATH, ["compute_score"], **grader)
        whiten = snapshot.take("verl/utils/torch_functional.py", ["masked_whiten"])
        self.algorithms = snapshot.take(
            RZERO_ALGORITHMS, ["compute_grpo_outcome_advantage"], VF=whiten
        )

    def scored(self, proposals: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
        """Stand in for the server that answers the questions: return the scripted scores."""
        results = []
        for proposal, score in zip(proposals, self.script, strict=True):
            found = score if proposal["question"] else -1
            results.append({**proposal, "score": found})
        return results

    def distances(self, questions: Sequence[str]) -> Any:
        """Return the BLEU distances between questions, an array of shape (n, n)."""
        return self.caller._bleu_distance_matrix(list(questions))

    def penalties(self, questions: Sequence[str]) -> list[float]:
        """Return the repetition penalties of questions."""
        with quietly_in(self.folder):
            return self.caller.cluster_share_per_problem(list(questions))

    def challenger_rewards(
        self, questions: Sequence[str], agreements: Sequence[float]
    ) -> list[float]:
        """Return the rewards of questions about whose answers the Solver agrees so far."""
        self.script = agreements
        proposals = []
        for question in questions:
            filled = f"<question>{question}</question> \\boxed{{1}}"
            proposals.append(filled if question else "")
        with quietly_in(self.folder):
            scores = self.caller.compute_score(proposals, [""] * len(proposals))
        return [score["overall"] for score in scores]

    def agreement(self, group: Sequence[str]) -> float:
        """Return the share of a group that gives its most frequent answer."""
        outputs = [SimpleNamespace(text=text) for text in group]
        response = SimpleNamespace(outputs=outputs)
        with quietly_in(self.folder):
            result = self.server.process_single("", "", response)
        return result["score"]

    def solver_rewards(self, texts: Sequence[str], label: str) -> list[float]:
        """Return the rewards of answers for agreeing with a label, and for their form."""
        scores = self.math.compute_score(list(texts), [label] * len(texts))
        return [score["overall"] for score in scores]

    def grpo(self, batch: Batch) -> list[float]:
        """Return the advantages of GRPO, one per completion."""
        rewards, mask = padded(batch)
        function = self.algorithms.compute_grpo_outcome_advantage
        advantages, _ = function(rewards, mask, batch.groups)
        return first_tokens(advantages)


def padded(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token-level rewards and the mask of a batch, each of shape (completions, tokens).

    The reward stands on the last token of a completion.
    """
    shape = (len(batch.rewards), max(batch.lengths))
    rewards = torch.zeros(shape)
    mask = torch.zeros(shape)
    for i, length in enumerate(batch.lengths):
        rewards[i, length - 1] = batch.rewards[i]
        mask[i, :length] = 1
    return rewards, mask


def first_tokens(advantages: torch.Tensor) -> list[float]:
    """Return each completion's advantage, which is the same on all of its tokens."""
    return [float(row[0]) for row in advantages]
