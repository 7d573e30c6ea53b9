"""The chunked path against the float64 reference: all options, random shapes, extremes, gradients, memory, errors."""

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import policy_loss

from coevolve.losses import reference, selective_logprobs

D = torch.float64
KINDS = ["ppo", "importance"]
FACTS = [
    field.name
    for field in fields(reference.PolicyLoss)
    if field.name not in ("loss", "path")
]


def problem(seed, T, V, H, dtype=D, scale=1.0):
    """Random hidden states, head, targets, advantages, old log-probabilities and weights.

    No ratio is within 1e-3 of a bound where the slope jumps.
    """
    draw = torch.Generator().manual_seed(seed)
    hidden = (scale * torch.randn(T, H, generator=draw, dtype=D)).to(dtype)
    head = torch.randn(V, H, generator=draw, dtype=D).to(dtype)
    targets = torch.randint(V, (T,), generator=draw)
    gaps = 3 * torch.rand(T, generator=draw, dtype=D) - 1.5
    for bound in (0.8, 1.28):
        gaps[(gaps - math.log(bound)).abs() < 1e-3] += 0.01
    old = reference.token_statistics(hidden.double(), head.double(), targets)[0] - gaps
    advantages = torch.randn(T, generator=draw, dtype=D)
    advantages[::7] = 0
    return (
        hidden,
        head,
        targets,
        advantages,
        old,
        torch.rand(T, generator=draw, dtype=D),
    )


def huge():
    """Inputs with logits of 1e4 or -1e4: token 0 is certain, token 1 impossible for the first state, and so on."""
    old, advantages = (
        torch.tensor([-2e4, -1.0, -1.0, -2e4]),
        torch.tensor([1.0, -1.0, 1.0, -1.0]),
    )
    hidden, head = (
        torch.tensor([[1e4], [1e4], [-1e4], [-1e4]]),
        torch.tensor([[1.0], [-1.0]]),
    )
    return hidden, head, torch.tensor([0, 1, 0, 1]), advantages, old


def outcome(inputs, trained=(True, True), upstream=1.0, **options):
    """Loss, facts and both gradients (None where nothing is trained) of a policy loss."""
    hidden, head = (
        x.detach().clone().requires_grad_(t)
        for x, t in zip(inputs[:2], trained, strict=True)
    )
    result = policy_loss(hidden, head, *inputs[2:], **options)
    if any(trained):
        (upstream * result.loss).backward()
    facts = {name: getattr(result, name) for name in FACTS}
    return facts | {
        "loss": result.loss.detach(),
        "hidden": hidden.grad,
        "head": head.grad,
        "path": result.path,
    }


def assert_same(ours, expected, rtol=1e-9, atol=1e-12):
    names = (*FACTS, "loss", "hidden", "head")
    found, wanted = (
        {name: facts[name] for name in names} for facts in (ours, expected)
    )
    torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol, check_dtype=False)


each_path = pytest.mark.parametrize("path", ["reference", "chunked"])
FLAGS = st.tuples(*[st.booleans()] * 4)
SIZES = {
    "T": st.integers(0, 40),
    "V": st.integers(1, 70),
    "H": st.integers(1, 9),
    "chunk": st.integers(1, 50),
}
OPTIONS = {
    "loss": st.sampled_from(KINDS),
    "clip": st.sampled_from([(0.2, 0.28), (0.2, 0.2)]),
    "entropy_coef": st.sampled_from([0.0, 0.01, -0.5]),
    "temperature": st.sampled_from([1.0, 0.4, 2.5]),
    "upstream": st.sampled_from([1.0, -2.5]),
}


@settings(max_examples=150)
@given(
    st.integers(0, 2**31),
    FLAGS,
    st.fixed_dictionaries(OPTIONS),
    st.fixed_dictionaries(SIZES),
)
def test_chunked_is_the_reference(seed, flags, options, sizes):
    chunk = sizes.pop("chunk")
    with_old, weighted, *trained = flags
    hidden, head, targets, advantages, old, shares = problem(seed, **sizes)
    inputs = hidden, head, targets, advantages, old if with_old else None
    options["weights_T"] = shares if weighted else None
    expected = outcome(inputs, trained, path="reference", **options)
    ours = outcome(inputs, trained, path="chunked", chunk=chunk, **options)
    assert ours["path"] == "chunked" and expected["path"] == "reference"
    assert_same(ours, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "rtol", "near"),
    [(torch.float32, 1e-4, 1e-5), (torch.bfloat16, 0.05, 0.02)],
)
def test_less_precise_inputs_come_close_to_float64(dtype, rtol, near, kind):
    inputs = problem(3, 64, 500, 32, dtype, scale=0.3)
    options = {
        "loss": kind,
        "entropy_coef": 0.05,
        "weights_T": inputs[-1],
        "temperature": 0.8,
    }
    exact = outcome(
        (inputs[0].double(), inputs[1].double(), *inputs[2:5]),
        path="reference",
        **options,
    )
    ours = outcome(inputs[:5], path="chunked", chunk=17, **options)
    assert ours["hidden"].dtype == ours["head"].dtype == dtype
    for name in ("logprobs_T", "entropy_T", "loss", "ratio_mean"):
        torch.testing.assert_close(
            ours[name].double(), exact[name], rtol=rtol, atol=rtol
        )
    for name in ("hidden", "head"):
        assert (ours[name] - exact[name]).norm() < near * exact[name].norm()


@each_path
@pytest.mark.parametrize("kind", ["ppo", "importance"])
def test_huge_logits_and_ratios_stay_finite(path, kind):
    ours = outcome(huge(), path=path, loss=kind, entropy_coef=0.1, chunk=3)
    torch.testing.assert_close(ours["logprobs_T"], torch.tensor([0.0, -2e4, -2e4, 0.0]))
    assert ours["entropy_T"].tolist() == [0.0] * 4
    assert all(
        torch.isfinite(ours[name]).all() for name in (*FACTS, "loss", "hidden", "head")
    )
    large = math.exp(20)  # ratios e^20, 0, 0, e^20
    terms = [-1.28, 0.8, 0.0, large] if kind == "ppo" else [-large, 0.0, 0.0, large]
    assert ours["loss"].item() == pytest.approx(sum(terms) / 4)


@each_path
def test_a_token_that_cannot_be_sampled_is_no_trouble(path):
    # In float32 the third product overflows to minus infinity: probability 0, nothing to the entropy, no gradient.
    hidden = torch.full((2, 2), 1e30)
    head = torch.tensor([[1e-30, 0.0], [0.0, 2e-30], [-1e30, 0.0]])
    inputs = (
        hidden,
        head,
        torch.tensor([0, 1]),
        torch.ones(2),
        torch.tensor([-1.0, -1.0]),
    )
    ours = outcome(inputs, path=path, entropy_coef=0.1)
    p = torch.tensor([1.0, 2.0]).softmax(-1)
    torch.testing.assert_close(ours["logprobs_T"], p.log())
    torch.testing.assert_close(ours["entropy_T"], -(p * p.log()).sum().expand(2))
    assert torch.isfinite(ours["hidden"]).all() and torch.isfinite(ours["loss"])


@each_path
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["hidden", "head"])
def test_what_is_not_finite_shows(path, value, where):
    hidden, head, *rest = problem(5, 8, 11, 4)
    (hidden if where == "hidden" else head)[3, 1] = value
    ours = outcome((hidden, head, *rest[:3]), path=path, chunk=3)
    assert not torch.isfinite(ours["loss"])
    assert not torch.isfinite(ours["hidden"][3]).all()


@pytest.mark.parametrize(
    "trained", [(False, False), (True, False), (False, True), (True, True)]
)
def test_no_gradient_is_computed_where_none_is_wanted(trained, monkeypatch):
    inputs, products = problem(7, 9, 20, 5)[:5], []
    monkeypatch.setattr(
        "coevolve.losses.chunked._write_product",
        lambda *a, out: products.append("hidden"),
    )
    monkeypatch.setattr(
        "coevolve.losses.chunked._add_product", lambda *a: products.append("head")
    )
    selective_logprobs(*(x.clone().requires_grad_() for x in inputs[:2]), inputs[2])
    assert products == []
    outcome(inputs, trained, chunk=9)
    assert products == ["hidden"] * trained[0] + ["head"] * trained[1]


@pytest.mark.parametrize("kind", KINDS)
@each_path
def test_a_weight_of_0_masks_a_token_whatever_else_it_says(path, kind):
    hidden, head, targets, advantages, old, _ = problem(12, 8, 40, 6)
    weights, used = torch.full_like(advantages, 0.25), torch.tensor([0, 2, 3, 6])
    masked = torch.ones(8, dtype=torch.bool)
    masked[used] = False
    weights[masked], old[masked], advantages[masked] = 0.0, torch.nan, torch.inf
    old[4] = -300.0  # a ratio that would be the largest
    settings = {"loss": kind, "entropy_coef": 0.01, "path": path}
    found = outcome(
        (hidden, head, targets, advantages, old), weights_T=weights, **settings
    )
    alone = (x[used] for x in (targets, advantages, old))
    expected = outcome(
        (hidden[used], head, *alone), weights_T=weights[used], **settings
    )
    for name in ("loss", "head", "ratio_mean", "ratio_max", "clip_fraction"):
        torch.testing.assert_close(
            found[name], expected[name], msg=lambda text, name=name: f"{name}: {text}"
        )
    for name in ("hidden", "logprobs_T"):
        torch.testing.assert_close(found[name][used], expected[name])
    assert not found["hidden"][masked].any()


def test_chunks_bound_what_is_allocated():
    """No tensor of the size of all logits is made, and what is made does not grow with T."""
    peaks = []
    for T in (512, 2048):
        hidden, head = torch.randn(T, 8, requires_grad=True), torch.randn(1000, 8)
        targets, advantages = torch.randint(1000, (T,)), torch.randn(T)
        with torch.profiler.profile(profile_memory=True) as seen:
            policy_loss(hidden, head, targets, advantages, chunk=64).loss.backward()
        peaks.append(max(event.cpu_memory_usage for event in seen.events()))
    assert peaks[0] <= 4 * 64 * 1000 * 4
    assert peaks[1] <= max(
        peaks[0], 2 * 4 * 2048 * 8
    )  # at most the gradient of the hidden states itself


BASE = problem(9, 4, 5, 3)[:5]


REFUSED = [
    (
        {},
        {"path": "cuda"},
        "path of the loss must be one of.*reference.*chunked.*triton.*'cuda'",
    ),
    (
        {},
        {"path": "triton"},
        "path of the loss 'triton' takes bfloat16 or float32, got torch.float64",
    ),
    (
        {0: BASE[0].float(), 1: BASE[1].float()},
        {"path": "triton"},
        "'triton' needs tensors on a CUDA device",
    ),
    ({}, {"loss": "grpo"}, "loss must be one of.*'grpo'"),
    ({}, {"weights_T": torch.ones(3)}, r"weights_T must have shape \(4,\), got \(3,\)"),
    ({1: BASE[1].float()}, {}, "must both be.*float64 and torch.float32"),
    (
        {0: BASE[0].half(), 1: BASE[1].half()},
        {},
        "bfloat16, float32 or float64, got torch.float16",
    ),
    ({2: BASE[2][:3]}, {}, "targets_T must have shape"),
    ({3: BASE[3][:, None]}, {}, "advantages_T must have shape"),
    ({4: BASE[4][:1]}, {}, "old_logprobs_T must have shape"),
]


@pytest.mark.parametrize(("changed", "options", "message"), REFUSED)
def test_what_is_not_allowed_is_named(changed, options, message, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    inputs = [changed.get(i, x) for i, x in enumerate(BASE)]
    with pytest.raises(ValueError, match=message):
        policy_loss(*inputs, **options)


FORCED = [
    ("", None, "chunked"),
    ("reference", None, "reference"),
    ("reference", "chunked", "chunked"),
]


@pytest.mark.parametrize(("forced", "path", "expected"), FORCED)
def test_environment_forces_a_path_and_an_argument_comes_first(
    monkeypatch, forced, path, expected
):
    monkeypatch.setenv("COEVOLVE_LOSS_PATH", forced)
    assert policy_loss(*BASE, path=path).path == expected
    monkeypatch.setenv("COEVOLVE_LOSS_PATH", "fastest")
    with pytest.raises(ValueError, match="path of the loss must be one of.*'fastest'"):
        selective_logprobs(*BASE[:3])
