"""Which models are refused because sampler or learner would compute other probabilities."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, ByT5Tokenizer

import tinyworld
from coevolve.models import names, probe
from coevolve.models.loading import load_local
from coevolve.models.policy import Policy
from coevolve.types import Turn

BACKBONE = Path(tinyworld.backbone("tiny"))
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 4,
    "pad_token_id": 0,
}
# Architectures whose sampler and learner agree: the fields that each needs besides SIZES.
AGREEING: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "mistral": {},
    "phi3": {},
    "gemma": {"head_dim": 16},
    "olmo2": {},
    "gpt_neox": {},
    "stablelm": {},
    "llama4_text": {
        "head_dim": 16,
        "intermediate_size_mlp": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
}


def build(kind: str, **fields: Any) -> Any:
    """Return a small random model whose logits are not flat."""
    vocabulary = len(AutoTokenizer.from_pretrained(BACKBONE))
    text_config = SIZES | {"vocab_size": vocabulary}
    nested = fields.pop("nested", None)
    config = text_config | fields
    if nested is not None:
        config = {"text_config": text_config | nested, **fields}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config))
    for parameter in model.parameters():
        if parameter.dim() > 1 and float(parameter.detach().std()) < 0.05:
            parameter.data.mul_(4)
    return model.float()


def wrap(model: Any) -> Policy:
    """Return a model as a policy with the embedded backbone's tokenizer."""
    return Policy(model, AutoTokenizer.from_pretrained(BACKBONE))


def answer(policy: Policy, text: str, count: int = 1) -> list[Any]:
    """Sample replies to prompts of different lengths."""
    turns = []
    for i in range(count):
        message = {"role": "user", "content": text * (1 + i)}
        turns.append(Turn("solver", (message,), key=(i,)))
    return policy.generate(turns, max_tokens=8)


@pytest.mark.parametrize("kind", AGREEING)
def test_sampler_and_learner_agree(kind: str) -> None:
    policy = wrap(build(kind, **AGREEING[kind]))
    replies = answer(policy, "3*4+", count=4)
    sampled = [number for reply in replies for number in reply.logprobs]
    torch.testing.assert_close(
        policy.logprobs(replies), torch.tensor(sampled), atol=1e-4, rtol=0
    )


GEMMA_4 = {"head_dim": 16, "sliding_window": 8, "final_logit_softcapping": 2.0}


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("gemma2", {"head_dim": 16}, "final_logit_softcapping = 30.0"),
        (
            "gemma4",
            {"nested": GEMMA_4, "vision_config": None, "audio_config": None},
            "text_config.final_logit_softcapping = 2.0",
        ),
        (
            "recurrent_gemma",
            {"lru_width": 64, "num_hidden_layers": 3},
            "logits_soft_cap = 30.0",
        ),
    ],
)
def test_a_cap_on_the_logits_is_refused_wherever_it_stands(
    kind: str, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match="caps them") as refusal:
        wrap(build(kind, **fields))
    assert reason in str(refusal.value)


class TestWhatHasNoName:
    """Differences that no field of a configuration tells."""

    def test_logits_that_are_changed_behind_the_head(self) -> None:
        model = build("llama")
        forward = model.forward

        def halved(*arguments: Any, **named: Any) -> Any:
            output = forward(*arguments, **named)
            output.logits = output.logits / 2
            return output

        model.forward = halved
        with pytest.raises(ValueError, match="the learner's log-probabilities differ"):
            wrap(model)

    def test_a_model_that_does_not_ignore_padding(self) -> None:
        with pytest.raises(ValueError, match="the sampler's log-probabilities differ"):
            wrap(build("rwkv", attention_hidden_size=64))

    def test_a_probe_draws_no_random_numbers(self) -> None:
        policy = load_local(BACKBONE)
        state = torch.get_rng_state()
        probe.check(policy)
        assert torch.equal(torch.get_rng_state(), state)


class TestNestedConfigurations:
    def test_a_prompt_beyond_the_context_is_refused(self) -> None:
        vision = {
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        }
        text = {"head_dim": 16, "sliding_window": 8, "max_position_embeddings": 64}
        model = build(
            "gemma3", nested=text, vision_config=vision, mm_tokens_per_image=4
        )
        policy = wrap(model)
        assert policy.context == 64
        with pytest.raises(ValueError, match="fills the model's context of 64"):
            answer(policy, "3*4+" * 40)


def test_a_tokenizer_written_in_python_gives_characters_per_token(
    tmp_path: Path,
) -> None:
    tokenizer = ByT5Tokenizer()
    assert not hasattr(tokenizer, "backend_tokenizer")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    model = build("llama")
    model.resize_token_embeddings(len(tokenizer))
    policy = Policy(model, tokenizer)
    token_ids = tuple(tokenizer.encode("aé!", add_special_tokens=False))
    text, char_ends = policy._cached_text(token_ids)
    assert text == "aé!"
    assert char_ends == (1, 1, 2, 3)


class TestAdapters:
    @pytest.fixture
    def adapter(self, tmp_path: Path) -> Path:
        """Return the folder of a fresh adapter of the embedded backbone."""
        from peft import LoraConfig, get_peft_model

        folder = tmp_path / "adapter"
        config = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
        base = AutoModelForCausalLM.from_pretrained(BACKBONE)
        get_peft_model(base, config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(BACKBONE).save_pretrained(folder)
        return folder

    @staticmethod
    def set_base(adapter: Path, base: str, encoding: str = "utf-8") -> None:
        """Write another base into an adapter's configuration."""
        path = adapter / names.ADAPTER_CONFIG
        settings = json.loads(path.read_text("utf-8"))
        settings["base_model_name_or_path"] = base
        path.write_text(json.dumps(settings), encoding)

    def test_a_byte_order_mark_is_skipped(self, adapter: Path) -> None:
        self.set_base(adapter, str(BACKBONE), "utf-8-sig")
        assert load_local(adapter).name == "shared"

    def test_an_adapter_is_not_its_own_base(self, adapter: Path) -> None:
        self.set_base(adapter, str(adapter))
        with pytest.raises(ValueError, match="is its own base"):
            load_local(adapter)

    def test_a_missing_base_is_named_with_its_adapter(self, adapter: Path) -> None:
        self.set_base(adapter, "elsewhere")
        with pytest.raises(ValueError, match="its base .* cannot be found") as error:
            load_local(adapter)
        assert str(adapter) in str(error.value)

    @pytest.mark.parametrize("text", ["", "{", "{}"])
    def test_an_unreadable_configuration_is_named(
        self, adapter: Path, text: str
    ) -> None:
        (adapter / names.ADAPTER_CONFIG).write_text(text)
        with pytest.raises(ValueError, match=names.ADAPTER_CONFIG):
            load_local(adapter)
