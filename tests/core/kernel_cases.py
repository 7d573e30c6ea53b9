"""The Triton kernels on a GPU, or with TRITON_INTERPRET=1 in Triton's interpreter on the CPU.

test_kernels.py runs this file in the interpreter, in a process of its own: the variable must be set
before Triton is first imported. `python -m tools.first_hour` runs it on a GPU.
"""

import math
import os
from dataclasses import dataclass

import pytest
import torch
from core.loss_problems import (
    GRADIENTS,
    STATISTICS,
    LossProblem,
    assert_same,
    huge_problem,
    random_problem,
)
from torch import Tensor

from coevolve.losses import LossConfig, TokenBatch, kernels, selective_logprobs

ON_GPU = os.environ.get("TRITON_INTERPRET") != "1"
if ON_GPU and not torch.cuda.is_available():
    pytest.skip("needs a GPU or TRITON_INTERPRET=1", allow_module_level=True)


@pytest.fixture(autouse=True)
def tensors_are_where_the_kernels_run():
    with torch.device("cuda" if ON_GPU else "cpu"):
        yield


@dataclass(frozen=True)
class Precision:
    """Inputs of a precision, and how close gradients come to float64."""

    dtype: torch.dtype
    gradient_error: float
    """Largest distance, relative to the norm."""


FLOAT32 = Precision(torch.float32, gradient_error=2e-5)
BFLOAT16 = Precision(torch.bfloat16, gradient_error=0.02)
# Rows shorter than, equal to and longer than one step of the kernels.
ROWS = [
    (FLOAT32, 1),
    (FLOAT32, 64),
    (FLOAT32, 1300),
    (BFLOAT16, 2),
    (BFLOAT16, 2500),
]
if ON_GPU:  # a real vocabulary, which takes the interpreter long
    ROWS += [(FLOAT32, 151_936), (BFLOAT16, 151_936)]


class TestAgainstTheReference:
    @pytest.mark.parametrize(
        ("entropy_coef", "temperature", "off_policy"),
        [(0.0, 1.0, True), (0.05, 0.7, True), (0.05, 1.0, False)],
    )
    @pytest.mark.parametrize(("precision", "V"), ROWS)
    def test_kernels_are_the_reference(
        self,
        precision: Precision,
        V: int,
        entropy_coef: float,
        temperature: float,
        off_policy: bool,
    ) -> None:
        problem = random_problem(V, T=5, V=V, H=8, dtype=precision.dtype, scale=0.3)
        if not off_policy:
            problem = problem.without("old_logprobs_T", "weights_T")
        options = {
            "entropy_coef": entropy_coef,
            "temperature": temperature,
            "upstream": -1.5,
        }
        result = problem.loss_and_gradients(path="triton", chunk=3, **options)
        assert result.path == "triton"
        self.check_statistics(result, problem, options)
        self.check_gradients(result, problem, options, precision)

    @staticmethod
    def check_statistics(result, problem: LossProblem, options: dict) -> None:
        """Compare with a reference in the same precision, so that both round the logits alike."""
        reference = problem.loss_and_gradients(path="reference", **options)
        for name in (*STATISTICS, "loss"):
            torch.testing.assert_close(
                getattr(result, name),
                getattr(reference, name),
                rtol=3e-5,
                atol=3e-5,
                msg=lambda message, name=name: f"{name}: {message}",
            )

    @staticmethod
    def check_gradients(
        result, problem: LossProblem, options: dict, precision: Precision
    ) -> None:
        """Compare with a reference in float64."""
        reference = problem.double().loss_and_gradients(path="reference", **options)
        for name in GRADIENTS:
            gradient = getattr(result, name)
            exact = getattr(reference, name)
            assert gradient.dtype == precision.dtype
            error = (gradient - exact).norm()
            bound = precision.gradient_error * exact.norm() + 1e-6
            assert error <= bound, f"{name}: {error}"

    def test_masked_tokens_do_not_count(self) -> None:
        problem = random_problem(5, T=7, V=30, H=4, dtype=torch.float32)
        problem.weights_T[::2] = 0.0
        problem.old_logprobs_T[::2] = torch.nan
        problem.advantages_T[::2] = torch.inf
        expected = problem.loss_and_gradients(path="reference")
        assert expected.loss.isfinite()
        assert expected.hidden_grad_TH.isfinite().all()
        result = problem.loss_and_gradients(path="triton", chunk=3)
        assert_same(result, expected, rtol=1e-4, atol=1e-5)

    def test_huge_logits_and_ratios_stay_finite(self) -> None:
        problem = huge_problem()
        result = problem.loss_and_gradients(path="triton", entropy_coef=0.1)
        assert result.loss.isfinite()
        assert result.hidden_grad_TH.isfinite().all()
        expected = problem.loss_and_gradients(path="reference", entropy_coef=0.1)
        assert_same(result, expected, rtol=1e-6, atol=1e-5)

    def test_selective_logprobs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = random_problem(2, T=6, V=50, H=4, dtype=torch.float32)
        problem = problem.without("weights_T")
        inputs = (problem.hidden_TH, problem.head_VH, problem.targets_T)
        monkeypatch.delenv("COEVOLVE_LOSS_PATH", raising=False)
        fastest = "triton" if ON_GPU else "chunked"
        assert problem.policy_loss().path == fastest
        monkeypatch.setenv("COEVOLVE_LOSS_PATH", "chunked")
        expected_T = selective_logprobs(*inputs, 0.6)

        monkeypatch.setenv("COEVOLVE_LOSS_PATH", "triton")
        assert problem.policy_loss().path == "triton"
        logprobs_T = selective_logprobs(*inputs, 0.6)
        torch.testing.assert_close(logprobs_T, expected_T, rtol=1e-5, atol=1e-5)


def test_no_tokens_have_a_loss_of_0() -> None:
    problem = random_problem(1, T=0, V=30, H=4, dtype=torch.float32)
    problem = problem.without("weights_T")
    result = problem.loss_and_gradients(path="triton")
    assert result.loss == 0
    assert result.hidden_grad_TH.shape == (0, 4)
    assert result.head_grad_VH.abs().sum() == 0


@dataclass(frozen=True)
class KernelOutput:
    """What the two kernels compute for T rows of logits."""

    logprobs_T: Tensor
    entropy_T: Tensor
    gradient_TV: Tensor


def run_kernels(
    logits_TV: Tensor,
    targets: list[int],
    old_logprobs: list[float] | None = None,
    entropy_coef: float = 0.0,
) -> KernelOutput:
    """Run the kernels on these logits, with advantages and weights of 1."""
    rows, columns = logits_TV.shape
    tokens = TokenBatch(
        targets_T=torch.tensor(targets),
        advantages_T=torch.ones(rows),
        weights_T=torch.ones(rows),
        config=LossConfig(entropy_coef=entropy_coef),
        old_logprobs_T=None if old_logprobs is None else torch.tensor(old_logprobs),
    )
    kernel = kernels.TritonRows(logits_TV, rows, columns)
    kernel.logits_CV.copy_(logits_TV)
    logprobs_T = torch.empty(rows)
    entropy_T = torch.empty(rows)
    gradient_TV = kernel(kernel.logits_CV, tokens, logprobs_T, entropy_T, gradient=True)
    return KernelOutput(logprobs_T, entropy_T, gradient_TV)


@pytest.mark.parametrize("entropy_coef", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_minus_infinity_is_probability_zero(
    dtype: torch.dtype, entropy_coef: float
) -> None:
    logits_V = torch.tensor([0.0, 1.0, -math.inf, 2.0]).repeat(700)
    logits_V[:600] = -math.inf  # all that some threads read
    logits_V = logits_V.to(dtype)
    output = run_kernels(logits_V[None], [1001], entropy_coef=entropy_coef)

    p_V = logits_V.float().softmax(-1)
    logprob = p_V[1001].log()
    torch.testing.assert_close(output.logprobs_T, logprob[None])
    p_V = p_V[p_V > 0]
    entropy = -(p_V * p_V.log()).sum()
    torch.testing.assert_close(output.entropy_T, entropy[None])
    assert output.gradient_TV.isfinite().all()
    assert output.gradient_TV[0, :600].abs().sum() == 0


def test_a_target_of_probability_zero_has_no_gradient() -> None:
    logits_TV = torch.tensor([[0.0, 1.0, -math.inf]])
    output = run_kernels(logits_TV, [2], old_logprobs=[-1.0])
    assert output.logprobs_T.item() == -math.inf
    assert output.entropy_T.isfinite()
    assert output.gradient_TV.abs().sum() == 0  # the ratio is 0


@pytest.mark.parametrize(
    "logits",
    [
        [0.0, math.nan, 1.0],
        [0.0, math.inf, 1.0],
        [-math.inf] * 3,
        [math.nan] * 3,
    ],
)
def test_logits_that_are_not_finite_give_nan(logits: list[float]) -> None:
    output = run_kernels(torch.tensor([logits]), [0])
    assert output.logprobs_T.isnan()
    assert output.gradient_TV.isnan().all()


@pytest.mark.parametrize("target", [-1, 5, 63, 2**40])
def test_a_target_outside_the_vocabulary_is_nan_and_reads_nothing(target: int) -> None:
    output = run_kernels(torch.zeros(1, 5), [target])
    assert output.logprobs_T.isnan()
    assert output.gradient_TV.isnan().all()
