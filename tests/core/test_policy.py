"""The policy: fields of a reply, character ends, hidden states, loading, architectures."""

import random
import shutil
from dataclasses import replace
from types import MethodType

import pytest
import torch
from tensors import END, qwen, ragged, teacher_forced
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoTokenizer,
    CohereForCausalLM,
    GPT2LMHeadModel,
    GraniteForCausalLM,
    PreTrainedTokenizerFast,
)

import tinyworld
from coevolve.engines.loading import load_policy
from coevolve.models.decoder import SUPPORTED_MODELS, supports
from coevolve.models.names import find
from coevolve.models.packing import bundles, micro_batches, pack_prefix_tree
from coevolve.models.policy import Policy
from coevolve.types import Turn

VOCABULARY = 520  # a few more than the tokenizer knows


@pytest.fixture(scope="module")
def tokenizer():
    """The backbones' own, byte-level, with one more token that holds spaces."""
    tokenizer = AutoTokenizer.from_pretrained(find("tiny"))
    tokenizer.add_tokens([" > Agent "])
    return tokenizer


@pytest.fixture(scope="module")
def policy(tokenizer):
    return Policy(qwen(vocabulary=VOCABULARY), tokenizer)


def turn(text, key, **settings):
    message = {"role": "user", "content": text}
    return Turn("solver", (message,), key=key, **settings)


@pytest.fixture(scope="module")
def replies(policy):
    """Replies to one prompt: 24 at temperature 0.8 with different limits, and a greedy one."""
    sampled = [
        turn("solve 12 + 30", (0, 0, i, 0), max_tokens=2 + i % 9) for i in range(24)
    ]
    greedy = turn("solve 12 + 30", (0, 0, 0, 0), temperature=0.0, max_tokens=5)
    turns = [*sampled, greedy]
    replies = policy.generate(turns, 0.8)
    assert [reply.turn for reply in replies] == turns
    return replies


def test_a_reply_holds_prompt_tokens_and_temperature(policy, replies):
    for reply in replies:
        greedy = reply.turn.temperature == 0
        assert reply.temperature == (1.0 if greedy else 0.8)
        prompt = policy.tokenizer.decode(reply.prompt_ids)
        assert prompt == "<bos><user>solve 12 + 30<assistant>"
        count = len(reply.completion_ids)
        assert 1 <= count <= reply.turn.max_tokens
        assert count == len(reply.logprobs) == len(reply.char_ends)


def test_a_reply_holds_its_text_and_how_it_ended(policy, replies):
    for reply in replies:
        ids = reply.completion_ids
        assert reply.finished == (ids[-1] in policy.eos_token_ids)
        assert reply.text == policy.tokenizer.decode(ids, skip_special_tokens=True)
        assert reply.char_ends[-1] == len(reply.text)
        assert "<end>" not in reply.text


def test_a_reply_s_logprobs_are_those_that_the_policy_computes(policy, replies):
    for reply in replies:
        sampled = torch.tensor(reply.logprobs)
        torch.testing.assert_close(policy.logprobs([reply]), sampled, atol=1e-4, rtol=0)


def test_no_turns_give_no_replies(policy):
    assert policy.generate([]) == []


def test_char_ends_of_a_split_character_wait_for_its_last_byte(policy, tokenizer):
    emoji_and_a = ["ð", "Ł", "Ļ", "Ĥ", "A"]  # F0 9F 99 82 is one emoji
    ids = tokenizer.convert_tokens_to_ids(emoji_and_a)
    text, char_ends = policy._text_and_char_ends(ids)
    assert text == "\N{SLIGHTLY SMILING FACE}A"
    assert char_ends == (0, 0, 0, 1, 2)


def test_char_ends_hold_for_any_bytes(policy):
    rng = random.Random(3)
    for _ in range(200):
        count = rng.randint(1, 30)
        # Special and undefined ids are among them.
        ids = [rng.randrange(VOCABULARY) for _ in range(count)]
        text, char_ends = policy._text_and_char_ends(ids)
        assert sorted(char_ends) == list(char_ends)
        assert char_ends[-1] == len(text)
        for i, end in enumerate(char_ends):
            text_so_far, _ = policy._text_and_char_ends(ids[: i + 1])
            assert text_so_far.startswith(text[:end])
            is_last = i + 1 == count
            if not is_last and not text_so_far.endswith("\ufffd"):
                assert end == len(text_so_far)


def test_char_ends_without_a_byte_level_tokenizer(policy):
    words = Tokenizer(models.WordLevel({"a": 0, "bb": 1, "<end>": 2}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    by_words = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<end>", pad_token="<end>"
    )
    other = Policy(policy.model, by_words)
    text, char_ends = other._text_and_char_ends([0, 1, 0, 2])
    assert text == "a bb a"
    assert char_ends == (1, 4, 6, 6)


def test_hidden_states_predict_each_completion_token(policy):
    completions = [[7, 8, 9], [4], [], [5, 5], [END], [10] * 6]
    examples = list(zip(ragged(6), completions, strict=True))
    hidden_TH, targets_T = policy.hidden_states(examples)
    assert targets_T.tolist() == sum(completions, [])
    assert hidden_TH.requires_grad
    hidden_TH, _ = policy.hidden_states([([5], [])])
    assert hidden_TH.shape == (0, 32)


def test_hidden_states_require_a_prompt(policy):
    with pytest.raises(ValueError, match="prompt"):
        policy.hidden_states([([], [4])])


PROMPTS = ragged(3)
GROUPED_EXAMPLES = [
    (PROMPTS[0], [7, 8, 9]),
    (PROMPTS[1], [4]),
    (PROMPTS[0], []),
    (PROMPTS[2], [5, 5]),
    (PROMPTS[0], [END]),
    (PROMPTS[1], [10] * 6),
    (PROMPTS[0], [7, 8, 3]),
]


def states_and_gradients(policy, batches):
    """Hidden states of all examples, and the gradient of a weighted sum of them."""
    policy.model.zero_grad()
    hidden_TH = torch.cat([policy.hidden_states(batch)[0] for batch in batches])
    weights = torch.linspace(-1, 1, hidden_TH.numel())
    loss = (hidden_TH * weights.view_as(hidden_TH)).sum()
    loss.backward()
    gradients = []
    for parameter in policy.parameters():
        if parameter.grad is not None:
            gradients.append(parameter.grad.flatten().clone())
    return hidden_TH.detach(), torch.cat(gradients)


@pytest.mark.parametrize("kind", SUPPORTED_MODELS)
def test_examples_of_one_prompt_have_the_states_and_gradients_they_have_alone(
    kind, tokenizer
):
    policy = Policy(qwen(kind=kind), tokenizer)
    assert policy.max_shared
    together = states_and_gradients(policy, [GROUPED_EXAMPLES])
    alone = states_and_gradients(policy, [[example] for example in GROUPED_EXAMPLES])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_examples_of_one_prompt_share_a_sequence(policy):
    packed = pack_prefix_tree(GROUPED_EXAMPLES, 1024, policy.head_VH)
    # Two of the four answers to the first prompt begin with 7 and 8, and the states after last
    # tokens are not needed.
    width = max(len(PROMPTS[0]) + 2, len(PROMPTS[1]) + 5)
    assert packed.input_BS.shape == (3, width)
    assert packed.attention
    assert not pack_prefix_tree(GROUPED_EXAMPLES, 0, policy.head_VH).attention


@pytest.fixture
def examples_of_eight_prompts():
    draw = random.Random(0)
    prompts = []
    for _ in range(8):
        token = draw.randrange(99)
        prompts.append([token] * draw.randint(1, 40))
    examples = []
    for _ in range(200):
        prompt = draw.choice(prompts)
        examples.append((prompt, [1] * draw.randint(1, 30)))
    return examples


@pytest.mark.parametrize("max_shared", [0, 1024])
def test_micro_batches_take_every_example_once(max_shared, examples_of_eight_prompts):
    examples = examples_of_eight_prompts
    all_indices = []
    for indices in micro_batches(examples, 120, max_shared):
        all_indices += indices
        batch = [examples[i] for i in indices]
        packed = pack_prefix_tree(batch, max_shared, torch.ones(1))
        rows, width = packed.input_BS.shape
        assert rows * width <= 120 or rows == 1
    assert sorted(all_indices) == list(range(200))


def test_a_long_sequence_gets_no_mask_from_replies_that_share_a_prompt():
    shared = [([1] * 20, [reply] * 10) for reply in range(2, 6)]
    long = [([7] * 60, [8] * 40)]
    batches = list(micro_batches([*long, *shared], 400, max_shared=64))
    assert sorted(batches) == [[0], [1, 2, 3, 4]]


def test_sharing_prompts_takes_fewer_micro_batches(examples_of_eight_prompts):
    shared = list(micro_batches(examples_of_eight_prompts, 120, 1024))
    separate = list(micro_batches(examples_of_eight_prompts, 120, 0))
    assert len(shared) < len(separate)


def test_long_groups_are_split_into_several_sequences():
    # Of thirty answers to one prompt, each given twice, ten keep within 1,024 tokens.
    examples = [([1] * 10, [2 + i] * 100) for i in range(30)]
    packed = bundles(examples * 2, 1024)
    assert [bundle.tokens for bundle in packed] == [10 + 10 * 99] * 3
    assert [len(bundle.indices) for bundle in packed] == [20] * 3


def test_a_prompt_that_fills_the_context_is_refused(policy):
    with pytest.raises(ValueError, match="solver.*128"):
        policy.generate([turn("x " * 200, ())])
    (reply,) = policy.generate([turn("7" * 110, (), max_tokens=64)])
    assert len(reply.prompt_ids) + len(reply.completion_ids) <= 128


def test_models_whose_logits_are_not_states_times_weights_are_refused(tokenizer):
    error = "Qwen2ForCausalLM adds a bias to its logits or caps them"
    with pytest.raises(ValueError, match=error):
        Policy(qwen(final_logit_softcapping=30.0), tokenizer)


SCALED = [
    (GPT2LMHeadModel, {}),
    (CohereForCausalLM, {"logit_scale": 0.3}),
    (GraniteForCausalLM, {"logits_scaling": 4}),
]


@pytest.fixture(params=SCALED, ids=str)
def other_policy(request, tokenizer):
    """A policy of an architecture that the decoder does not support."""
    kind, scale = request.param
    policy = Policy(qwen(kind=kind, vocabulary=VOCABULARY, **scale), tokenizer)
    assert not supports(policy.model)
    # The log-probabilities would not know about a penalty.
    policy.model.generation_config.repetition_penalty = 5.0
    return policy


@pytest.fixture
def mixed_turns():
    """Turns with prompts of different lengths, three temperatures and different limits."""
    turns = []
    for i in range(8):
        one = turn("propose"[: 3 + i], (0, i), max_tokens=3 + i)
        turns.append(replace(one, temperature=(1.0, 0.5, 0.0)[i % 3]))
    return turns


def test_other_architectures_go_through_transformers_and_scales_count(
    other_policy, mixed_turns
):
    for reply in other_policy.generate(mixed_turns):
        expected = teacher_forced(
            other_policy.model,
            reply.prompt_ids,
            reply.completion_ids,
            reply.temperature,
        )
        sampled = torch.tensor(reply.logprobs)
        computed = other_policy.logprobs([reply])
        torch.testing.assert_close(sampled, expected, atol=1e-4, rtol=0)
        torch.testing.assert_close(computed, expected, atol=1e-4, rtol=0)
        assert reply.finished or len(reply.completion_ids) == reply.turn.max_tokens
    assert other_policy.model.generation_config.repetition_penalty == 5.0


def test_a_generate_that_is_bound_to_the_model_samples_alike(other_policy, mixed_turns):
    expected = other_policy.generate(mixed_turns)
    model = other_policy.model
    model.generate = MethodType(type(model).generate, model)  # as Unsloth does
    assert other_policy.generate(mixed_turns) == expected
    assert model.generation_config.repetition_penalty == 5.0


def test_other_architectures_give_the_same_samples_in_any_order(
    other_policy, mixed_turns
):
    replies = other_policy.generate(mixed_turns)
    reversed_replies = other_policy.generate(mixed_turns[::-1])
    ids = [reply.completion_ids for reply in replies]
    assert [reply.completion_ids for reply in reversed_replies[::-1]] == ids


def test_a_model_is_found_by_name_folder_or_hub_id():
    folder = tinyworld.BACKBONES / "tiny"
    assert find("tiny") == folder
    assert find(folder) == folder
    assert find("org/name") == "org/name"


UNKNOWN = r"^model must be one of smollm2, .*ORG/NAME.*got '.*'"


def test_an_unknown_model_is_an_error_that_lists_the_choices(tmp_path):
    for unknown in ("nope", str(tmp_path)):
        with pytest.raises(ValueError, match=UNKNOWN):
            find(unknown)


def test_a_folder_that_does_not_exist_is_said_so(tmp_path):
    for missing in ("a/b/c", str(tmp_path / "nowhere")):
        with pytest.raises(ValueError, match="model must be a folder that exists.*got"):
            find(missing)


def test_a_folder_without_a_whole_model_cannot_be_loaded(tmp_path):
    with pytest.raises(ValueError, match="nowhere.* cannot be loaded"):
        Policy.load(tmp_path / "nowhere")
    cut = shutil.copytree(find("tiny-small"), tmp_path / "cut")
    (cut / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match="cut' cannot be loaded: .*header"):
        Policy.load(cut)


def test_an_adapter_that_names_no_base_cannot_be_loaded(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="base_model_name_or_path is missing"):
        load_policy(tmp_path)
