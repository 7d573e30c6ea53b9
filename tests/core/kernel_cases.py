"""The Triton kernels in Triton's interpreter, on CPU tensors: run by test_kernels.py with TRITON_INTERPRET=1.

A file of its own because the variable must be set before Triton is first imported.
"""

import math

import pytest
import torch
from tensors import policy_loss
from test_losses_paths import FACTS, assert_same, huge, outcome, problem

from coevolve.losses import kernels, selective_logprobs
from coevolve.losses.reference import LossConfig, TokenBatch

# Rows shorter than, equal to and longer than one step of the kernels, and not a multiple of anything.
COLUMNS = {torch.float32: [1, 64, 1300], torch.bfloat16: [2, 2500]}
NEAR = {torch.float32: 2e-5, torch.bfloat16: 0.02}


@pytest.mark.parametrize(
    ("dtype", "V"), [(dtype, V) for dtype, every in COLUMNS.items() for V in every]
)
def test_kernels_are_the_reference(dtype, V):
    inputs = problem(V, 5, V, 8, dtype, scale=0.3)
    for entropy_coef, temperature, with_old in [
        (0.0, 1.0, True),
        (0.05, 0.7, True),
        (0.05, 1.0, False),
    ]:
        given = *inputs[:4], inputs[4] if with_old else None
        shares = inputs[5] if with_old else None
        options = {
            "entropy_coef": entropy_coef,
            "temperature": temperature,
            "weights_T": shares,
        }
        ours = outcome(given, path="triton", chunk=3, upstream=-1.5, **options)
        assert ours["path"] == "triton"
        # Logits are rounded to the inputs' precision: the reference rounds them alike, and then counts in float32.
        alike = outcome(given, path="reference", upstream=-1.5, **options)
        for name in (*FACTS, "loss"):
            torch.testing.assert_close(
                ours[name],
                alike[name],
                rtol=3e-5,
                atol=3e-5,
                msg=lambda m, n=name: n + m,
            )
        exact = outcome(
            (given[0].double(), given[1].double(), *given[2:]),
            path="reference",
            upstream=-1.5,
            **options,
        )
        for name in ("hidden", "head"):
            assert ours[name].dtype == dtype
            gap = (ours[name] - exact[name]).norm()
            assert gap <= NEAR[dtype] * exact[name].norm() + 1e-6, f"{name}: {gap}"


def test_masked_tokens_and_no_tokens():
    inputs = [*problem(5, 7, 30, 4, torch.float32)]
    inputs[5][::2] = 0.0
    inputs[4][::2], inputs[3][::2] = torch.nan, torch.inf
    weights_T = inputs.pop()
    expected = outcome(inputs, path="reference", weights_T=weights_T)
    assert expected["loss"].isfinite() and expected["hidden"].isfinite().all()
    assert_same(
        outcome(inputs, path="triton", chunk=3, weights_T=weights_T),
        expected,
        rtol=1e-4,
        atol=1e-5,
    )
    empty = outcome(problem(1, 0, 30, 4, torch.float32)[:5], path="triton")
    assert (
        empty["loss"] == 0
        and empty["hidden"].shape == (0, 4)
        and empty["head"].abs().sum() == 0
    )


def test_selective_logprobs(monkeypatch):
    inputs = problem(2, 6, 50, 4, torch.float32)
    expected = selective_logprobs(*inputs[:3], 0.6)
    assert policy_loss(*inputs[:5]).path == "chunked"  # a CPU's default stays in torch
    monkeypatch.setenv("COEVOLVE_LOSS_PATH", "triton")
    assert policy_loss(*inputs[:5]).path == "triton"
    torch.testing.assert_close(
        selective_logprobs(*inputs[:3], 0.6), expected, rtol=1e-5, atol=1e-5
    )


def test_huge_logits_and_ratios_stay_finite():
    ours, expected = (
        outcome(huge(), path=path, entropy_coef=0.1) for path in ("triton", "reference")
    )
    assert torch.isfinite(ours["loss"]) and torch.isfinite(ours["hidden"]).all()
    assert_same(ours, expected, rtol=1e-6, atol=1e-5)


def through_kernels(logits, targets, old=None, **objective):
    """Log-probabilities, entropies and the gradient that the kernels make of these logits."""
    rows, columns = logits.shape
    kernel = kernels.TritonRows(logits, rows, columns)
    config = LossConfig(**objective)
    tokens = TokenBatch(targets, torch.ones(rows), torch.ones(rows), old, config=config)
    logprobs, entropy = torch.empty(rows), torch.empty(rows)
    return (
        logprobs,
        entropy,
        kernel(kernel.logits_CV.copy_(logits), tokens, logprobs, entropy, True),
    )


@pytest.mark.parametrize("entropy_coef", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_minus_infinity_is_probability_zero(dtype, entropy_coef):
    logits = torch.tensor([0.0, 1.0, -math.inf, 2.0]).repeat(700)[None].to(dtype)
    logits[0, :600] = -math.inf  # whole threads and more see nothing else
    logprob, entropy, gradient = through_kernels(
        logits, torch.tensor([1001]), entropy_coef=entropy_coef
    )
    p = logits.float().softmax(-1)[0]
    kept = p[p > 0]
    torch.testing.assert_close(logprob, p[1001:1002].log())
    torch.testing.assert_close(entropy, -(kept * kept.log()).sum()[None])
    assert torch.isfinite(gradient).all() and gradient[0, :600].abs().sum() == 0


def test_a_target_of_probability_zero():
    logits = torch.tensor([[0.0, 1.0, -math.inf]])
    logprob, entropy, gradient = through_kernels(
        logits, torch.tensor([2]), old=torch.tensor([-1.0])
    )
    assert (
        logprob.item() == -math.inf and entropy.isfinite() and gradient.abs().sum() == 0
    )  # ratio 0


@pytest.mark.parametrize(
    "row", [[0.0, math.nan, 1.0], [0.0, math.inf, 1.0], [-math.inf] * 3, [math.nan] * 3]
)
def test_what_is_not_finite_shows(row):
    logprob, _, gradient = through_kernels(torch.tensor([row]), torch.tensor([0]))
    assert logprob.isnan() and gradient.isnan().all()


@pytest.mark.parametrize("target", [-1, 5, 63, 2**40])
def test_a_target_outside_the_vocabulary_is_nan_and_reads_nothing(target):
    logprob, _, gradient = through_kernels(torch.zeros(1, 5), torch.tensor([target]))
    assert logprob.isnan() and gradient.isnan().all()
