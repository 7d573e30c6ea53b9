"""The policy: what a reply holds, where characters end, states, saving, and models other than Qwen2."""

import random
import shutil

import pytest
import torch
from tensors import END, qwen, ragged, teacher_forced
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, CohereForCausalLM, GPT2LMHeadModel, GraniteForCausalLM, PreTrainedTokenizerFast

import tinyworld
from coevolve.engines.loading import load_policy
from coevolve.models.decoder import MODELS, supports
from coevolve.models.names import find
from coevolve.models.packing import bundles, micro_batches, pack
from coevolve.models.policy import Policy
from coevolve.types import Turn

VOCABULARY = 520  # a few more than the tokenizer knows


@pytest.fixture(scope="module")
def tokenizer():
    """The backbones' own, byte-level, with one more token that holds spaces."""
    found = AutoTokenizer.from_pretrained(find("tiny"))
    found.add_tokens([" > Agent "])
    return found


@pytest.fixture(scope="module")
def policy(tokenizer):
    return Policy(qwen(vocabulary=VOCABULARY), tokenizer)


def turn(text, key, **settings):
    return Turn("solver", ({"role": "user", "content": text},), key=key, **settings)


def test_generate_fills_every_field_of_a_reply(policy):
    turns = [turn("solve 12 + 30", (0, 0, i, 0), max_tokens=2 + i % 9) for i in range(24)]
    turns.append(turn("solve 12 + 30", (0, 0, 0, 0), temperature=0.0, max_tokens=5))
    for asked, reply in zip(turns, policy.generate(turns, 0.8), strict=True):
        assert reply.turn == asked and reply.temperature == (1.0 if asked.temperature == 0 else 0.8)
        assert policy.tokenizer.decode(reply.prompt_ids) == "<bos><user>solve 12 + 30<assistant>"
        assert 1 <= len(reply.completion_ids) <= asked.max_tokens
        assert len(reply.completion_ids) == len(reply.logprobs) == len(reply.char_ends)
        assert reply.finished == (reply.completion_ids[-1] in policy.end_ids)
        assert reply.text == policy.tokenizer.decode(reply.completion_ids, skip_special_tokens=True)
        assert reply.char_ends[-1] == len(reply.text) and "<end>" not in reply.text
        torch.testing.assert_close(policy.logprobs([reply]), torch.tensor(reply.logprobs), atol=1e-4, rtol=0)
    assert policy.generate([]) == []


def test_ends_of_a_split_character_wait_for_its_last_byte(policy, tokenizer):
    pieces = tokenizer.convert_tokens_to_ids(["ð", "Ł", "Ļ", "Ĥ", "A"])  # F0 9F 99 82 is one emoji
    assert policy._read(pieces) == ("\N{SLIGHTLY SMILING FACE}A", (0, 0, 0, 1, 2))


def test_ends_hold_for_any_bytes(policy):
    rng = random.Random(3)
    for _ in range(200):
        ids = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 30))]  # special and undefined ids among them
        text, ends = policy._read(ids)
        assert sorted(ends) == list(ends) and ends[-1] == len(text)
        assert all(policy._read(ids[: i + 1])[0].startswith(text[:end]) for i, end in enumerate(ends))
        wanted = [policy._read(ids[: i + 1])[0] for i in range(len(ids) - 1)]
        assert all(end == len(said) for end, said in zip(ends, wanted, strict=False) if not said.endswith("\ufffd"))


def test_ends_without_a_byte_level_tokenizer(policy):
    words = Tokenizer(models.WordLevel({"a": 0, "bb": 1, "<end>": 2}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    spaced = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<end>")
    other = Policy(policy.model, spaced)
    assert other._read([0, 1, 0, 2]) == ("a bb a", (1, 4, 6, 6))


def test_states_predict_each_completion_token(policy):
    examples = list(zip(ragged(6), [[7, 8, 9], [4], [], [5, 5], [END], [10] * 6], strict=True))
    hidden_TH, targets_T = policy.states(examples)
    assert targets_T.tolist() == [token for _, ids in examples for token in ids] and hidden_TH.requires_grad
    assert policy.states([([5], [])])[0].shape == (0, 32)
    with pytest.raises(ValueError, match="prompt"):
        policy.states([([], [4])])


@pytest.mark.parametrize("kind", MODELS)
def test_examples_of_one_prompt_share_it_and_give_the_states_and_gradients_they_give_alone(kind, tokenizer):
    policy = Policy(qwen(kind=kind), tokenizer)
    prompts = ragged(3)
    completions = [[7, 8, 9], [4], [], [5, 5], [END], [10] * 6, [7, 8, 3]]
    examples = [(prompts[i], ids) for i, ids in zip([0, 1, 0, 2, 0, 1, 0], completions, strict=True)]
    packed = pack(examples, True, policy.head_VH)
    # Of the four answers to the first prompt two begin with 7 and 8, and no state after a last token is needed.
    assert policy.shares_prompts and packed.input_BS.shape == (3, max(len(prompts[0]) + 2, len(prompts[1]) + 5))
    assert packed.attention and not pack(examples, False, policy.head_VH).attention
    found = []
    for batches in [examples], [[one] for one in examples]:
        policy.model.zero_grad()
        states = torch.cat([policy.states(batch)[0] for batch in batches])
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        grads = [part.grad.flatten().clone() for part in policy.parameters() if part.grad is not None]
        found.append((states.detach(), torch.cat(grads)))
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-4)


def test_micro_batches_take_every_example_once_and_long_groups_in_several_sequences():
    draw = random.Random(0)
    prompts = [[draw.randrange(99)] * draw.randint(1, 40) for _ in range(8)]
    examples = [(draw.choice(prompts), [1] * draw.randint(1, 30)) for _ in range(200)]
    for share in (False, True):
        batches = list(micro_batches(examples, 120, share))
        assert sorted(i for batch in batches for i in batch) == list(range(200))
        for batch in batches:
            shape = pack([examples[i] for i in batch], share, torch.ones(1)).input_BS.shape
            assert shape.numel() <= 120 or shape[0] == 1
    assert len(list(micro_batches(examples, 120, True))) < len(list(micro_batches(examples, 120, False)))
    # Of thirty answers to one prompt, each given twice, ten keep within 1,024 tokens.
    found = bundles([([1] * 10, [2 + i] * 100) for i in range(30)] * 2, True)
    assert [(size, len(bundle)) for size, bundle in found] == [(10 + 10 * 99, 20)] * 3


def test_a_prompt_that_fills_the_context_is_refused(policy):
    with pytest.raises(ValueError, match="solver.*128"):
        policy.generate([turn("x " * 200, ())])
    nearly = policy.generate([turn("7" * 110, (), max_tokens=64)])[0]
    assert len(nearly.prompt_ids) + len(nearly.completion_ids) <= 128


def test_models_whose_logits_are_not_states_times_weights_are_refused(tokenizer):
    with pytest.raises(ValueError, match="Qwen2ForCausalLM adds a bias to its logits or caps them"):
        Policy(qwen(final_logit_softcapping=30.0), tokenizer)


SCALED = [(GPT2LMHeadModel, {}), (CohereForCausalLM, {"logit_scale": 0.3}), (GraniteForCausalLM, {"logits_scaling": 4})]


@pytest.mark.parametrize(("kind", "scale"), SCALED)
def test_other_architectures_go_through_transformers_and_scales_count(kind, scale, tokenizer):
    stranger = Policy(qwen(kind=kind, vocabulary=VOCABULARY, **scale), tokenizer)
    assert not supports(stranger.model)
    stranger.model.generation_config.repetition_penalty = 5.0  # a penalty the log-probabilities would not know about
    turns = [turn("propose"[: 3 + i], (0, i), temperature=(1.0, 0.5, 0.0)[i % 3], max_tokens=3 + i) for i in range(8)]
    replies = stranger.generate(turns)
    for reply in replies:
        expected = teacher_forced(stranger.model, reply.prompt_ids, reply.completion_ids, reply.temperature)
        for found in (torch.tensor(reply.logprobs), stranger.logprobs([reply])):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
        assert reply.finished or len(reply.completion_ids) == reply.turn.max_tokens
    assert [reply.completion_ids for reply in stranger.generate(turns[::-1])[::-1]] == [reply.completion_ids for reply in replies]
    assert stranger.model.generation_config.repetition_penalty == 5.0


def test_a_model_is_found_by_name_folder_or_hub_id(tmp_path):
    assert find("tiny") == tinyworld.BACKBONES / "tiny" and find(find("tiny")) == find("tiny")
    assert find("org/name") == "org/name"
    for unknown in ("nope", "a/b/c", str(tmp_path)):
        with pytest.raises(ValueError, match=r"^model must be one of smollm2, .*ORG/NAME.*got '.*'$"):
            find(unknown)
    with pytest.raises(ValueError, match="nowhere.* cannot be loaded"):
        Policy.load(tmp_path / "nowhere")
    cut = shutil.copytree(find("tiny-small"), tmp_path / "cut")
    (cut / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match="cut' cannot be loaded: .*header"):
        Policy.load(cut)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="got 'none for "):
        load_policy(tmp_path)
