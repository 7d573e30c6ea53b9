"""The chunked path of the loss against the reference in float64, its memory, and its errors."""

import math
from dataclasses import dataclass, field, fields, replace

import pytest
import torch
from core.loss_problems import (
    GRADIENTS,
    LossProblem,
    assert_same,
    huge_problem,
    random_problem,
)
from core.tensors import policy_loss
from hypothesis import given, settings
from hypothesis import strategies as st

from coevolve import losses
from coevolve.losses import selective_logprobs

each_loss = pytest.mark.parametrize("loss", ["ppo", "importance"])
each_path = pytest.mark.parametrize("path", ["reference", "chunked"])

SIZES = st.fixed_dictionaries(
    {
        "T": st.integers(0, 40),
        "V": st.integers(1, 70),
        "H": st.integers(1, 9),
    }
)
OPTIONS = st.fixed_dictionaries(
    {
        "loss": st.sampled_from(["ppo", "importance"]),
        "clip": st.sampled_from([(0.2, 0.28), (0.2, 0.2)]),
        "entropy_coef": st.sampled_from([0.0, 0.01, -0.5]),
        "temperature": st.sampled_from([1.0, 0.4, 2.5]),
        "upstream": st.sampled_from([1.0, -2.5]),
        "train_hidden": st.booleans(),
        "train_head": st.booleans(),
    }
)
MISSING = st.sets(st.sampled_from(["old_logprobs_T", "weights_T"]))


class TestAgainstTheReference:
    @settings(max_examples=150)
    @given(
        seed=st.integers(0, 2**31),
        sizes=SIZES,
        missing=MISSING,
        options=OPTIONS,
        chunk=st.integers(1, 50),
    )
    def test_chunked_is_the_reference(
        self, seed: int, sizes: dict, missing: set[str], options: dict, chunk: int
    ) -> None:
        problem = random_problem(seed, **sizes).without(*missing)
        expected = problem.loss_and_gradients(path="reference", **options)
        result = problem.loss_and_gradients(path="chunked", chunk=chunk, **options)
        assert result.path == "chunked"
        assert expected.path == "reference"
        assert_same(result, expected)

    @each_loss
    @pytest.mark.parametrize(
        ("dtype", "tolerance", "gradient_error"),
        [(torch.float32, 1e-4, 1e-5), (torch.bfloat16, 0.05, 0.02)],
    )
    def test_less_precise_inputs_come_close_to_float64(
        self, dtype: torch.dtype, tolerance: float, gradient_error: float, loss: str
    ) -> None:
        problem = random_problem(3, T=64, V=500, H=32, dtype=dtype, scale=0.3)
        options = {"loss": loss, "entropy_coef": 0.05, "temperature": 0.8}
        exact = problem.double().loss_and_gradients(path="reference", **options)
        result = problem.loss_and_gradients(path="chunked", chunk=17, **options)
        for name in ("logprobs_T", "entropy_T", "loss", "ratio_mean"):
            torch.testing.assert_close(
                getattr(result, name).double(),
                getattr(exact, name),
                rtol=tolerance,
                atol=tolerance,
            )
        for name in GRADIENTS:
            gradient = getattr(result, name)
            exact_gradient = getattr(exact, name)
            assert gradient.dtype == dtype
            error = (gradient - exact_gradient).norm()
            assert error < gradient_error * exact_gradient.norm()


class TestExtremes:
    @each_path
    @pytest.mark.parametrize(
        ("loss", "terms"),
        # The ratios are e^20 (the largest that a ratio becomes), 0, 0 and e^20.
        [
            ("ppo", [-1.28, 0.8, 0.0, math.exp(20)]),
            ("importance", [-math.exp(20), 0.0, 0.0, math.exp(20)]),
        ],
    )
    def test_huge_logits_and_ratios_stay_finite(
        self, path: str, loss: str, terms: list[float]
    ) -> None:
        problem = huge_problem()
        result = problem.loss_and_gradients(
            path=path, loss=loss, entropy_coef=0.1, chunk=3
        )
        for tensor in result.tensors().values():
            assert tensor.isfinite().all()
        expected_T = torch.tensor([0.0, -2e4, -2e4, 0.0])
        torch.testing.assert_close(result.logprobs_T, expected_T)
        assert result.entropy_T.tolist() == [0.0] * 4
        assert result.loss.item() == pytest.approx(sum(terms) / 4)

    @each_path
    def test_a_token_that_cannot_be_sampled_changes_nothing(self, path: str) -> None:
        # In float32 the third product overflows to minus infinity: the token has probability 0,
        # adds nothing to the entropy and has no gradient.
        problem = LossProblem(
            hidden_TH=torch.full((2, 2), 1e30),
            head_VH=torch.tensor([[1e-30, 0.0], [0.0, 2e-30], [-1e30, 0.0]]),
            targets_T=torch.tensor([0, 1]),
            advantages_T=torch.ones(2),
            old_logprobs_T=torch.tensor([-1.0, -1.0]),
        )
        result = problem.loss_and_gradients(path=path, entropy_coef=0.1)
        p_V = torch.tensor([1.0, 2.0]).softmax(-1)
        torch.testing.assert_close(result.logprobs_T, p_V.log())
        entropy = -(p_V * p_V.log()).sum()
        torch.testing.assert_close(result.entropy_T, entropy.expand(2))
        assert result.hidden_grad_TH.isfinite().all()
        assert result.loss.isfinite()

    @each_path
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    @pytest.mark.parametrize("name", ["hidden_TH", "head_VH"])
    def test_an_input_that_is_not_finite_shows_in_the_loss(
        self, path: str, value: float, name: str
    ) -> None:
        problem = random_problem(5, T=8, V=11, H=4).without("weights_T")
        getattr(problem, name)[3, 1] = value
        result = problem.loss_and_gradients(path=path, chunk=3)
        assert not result.loss.isfinite()
        assert not result.hidden_grad_TH[3].isfinite().all()


class TestMaskedTokens:
    USED = (0, 2, 3, 6)

    @pytest.fixture
    def problem(self) -> LossProblem:
        """Eight tokens, of which four have a weight of 0 and inputs that are not finite."""
        problem = random_problem(12, T=8, V=40, H=6)
        weights_T = torch.full_like(problem.advantages_T, 0.25)
        for token in range(8):
            if token not in self.USED:
                weights_T[token] = 0.0
                problem.old_logprobs_T[token] = torch.nan
                problem.advantages_T[token] = torch.inf
        problem.old_logprobs_T[4] = -300.0  # a ratio that would be the largest
        return replace(problem, weights_T=weights_T)

    @pytest.fixture
    def used_tokens(self, problem: LossProblem) -> LossProblem:
        """The same problem without the masked tokens."""
        inputs = vars(problem).copy()
        head_VH = inputs.pop("head_VH")
        used_inputs = {name: inputs[name][list(self.USED)] for name in inputs}
        return LossProblem(head_VH=head_VH, **used_inputs)

    @each_loss
    @each_path
    def test_a_weight_of_0_masks_a_token_whatever_its_other_inputs_are(
        self, problem: LossProblem, used_tokens: LossProblem, path: str, loss: str
    ) -> None:
        options = {"loss": loss, "entropy_coef": 0.01, "path": path}
        result = problem.loss_and_gradients(**options)
        expected = used_tokens.loss_and_gradients(**options)
        used = list(self.USED)
        masked = [token for token in range(8) if token not in used]
        for name, tensor in result.tensors().items():
            if name.endswith(("_T", "_TH")):
                tensor = tensor[used]
            torch.testing.assert_close(
                tensor,
                getattr(expected, name),
                msg=lambda message, name=name: f"{name}: {message}",
            )
        assert not result.hidden_grad_TH[masked].any()


@pytest.mark.parametrize("train_head", [False, True])
@pytest.mark.parametrize("train_hidden", [False, True])
def test_only_the_gradients_of_trained_inputs_are_computed(
    train_hidden: bool, train_head: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = []

    def write_product(*factors, out):
        products.append("hidden")

    def add_product(*arguments):
        products.append("head")

    monkeypatch.setattr("coevolve.losses.chunked._write_product", write_product)
    monkeypatch.setattr("coevolve.losses.chunked._add_product", add_product)
    problem = random_problem(7, T=9, V=20, H=5).without("weights_T")
    hidden_TH = problem.hidden_TH.clone().requires_grad_()
    head_VH = problem.head_VH.clone().requires_grad_()
    selective_logprobs(hidden_TH, head_VH, problem.targets_T)
    assert products == []

    problem.loss_and_gradients(train_hidden, train_head, chunk=9)
    expected = []
    if train_hidden:
        expected.append("hidden")
    if train_head:
        expected.append("head")
    assert products == expected


class TestMemory:
    V = 1000
    H = 8
    CHUNK = 64
    BYTES = 4  # of a float32

    def peak_memory(self, T: int) -> int:
        """Return the largest allocation of a loss and its gradient, in bytes."""
        hidden_TH = torch.randn(T, self.H, requires_grad=True)
        head_VH = torch.randn(self.V, self.H)
        targets_T = torch.randint(self.V, (T,))
        advantages_T = torch.randn(T)
        with torch.profiler.profile(profile_memory=True) as profile:
            result = policy_loss(
                hidden_TH, head_VH, targets_T, advantages_T, chunk=self.CHUNK
            )
            result.loss.backward()
        return max(event.cpu_memory_usage for event in profile.events())

    def test_no_tensor_has_the_size_of_all_logits_or_grows_with_them(self) -> None:
        peak = self.peak_memory(512)
        assert peak <= 4 * self.CHUNK * self.V * self.BYTES
        hidden_gradient = 2048 * self.H * self.BYTES
        assert self.peak_memory(2048) <= max(peak, 2 * hidden_gradient)


VALID = random_problem(9, T=4, V=5, H=3).without("weights_T")


@dataclass(frozen=True)
class Mistake:
    """Changes to a valid call, and the error that they cause."""

    message: str
    options: dict = field(default_factory=dict)
    inputs: dict = field(default_factory=dict)


MISTAKES = [
    Mistake(
        "path of the loss must be one of.*reference.*chunked.*triton.*'cuda'",
        options={"path": "cuda"},
    ),
    Mistake(
        "path of the loss 'triton' takes bfloat16 or float32, got torch.float64",
        options={"path": "triton"},
    ),
    Mistake(
        "'triton' needs tensors on a CUDA device",
        options={"path": "triton"},
        inputs={
            "hidden_TH": VALID.hidden_TH.float(),
            "head_VH": VALID.head_VH.float(),
        },
    ),
    Mistake("loss must be one of.*'grpo'", options={"loss": "grpo"}),
    Mistake(
        r"weights_T must have shape \(4,\), got \(3,\)",
        inputs={"weights_T": torch.ones(3)},
    ),
    Mistake(
        "must both be.*float64 and torch.float32",
        inputs={"head_VH": VALID.head_VH.float()},
    ),
    Mistake(
        "bfloat16, float32 or float64, got torch.float16",
        inputs={
            "hidden_TH": VALID.hidden_TH.half(),
            "head_VH": VALID.head_VH.half(),
        },
    ),
    Mistake(
        "targets_T must have shape",
        inputs={"targets_T": VALID.targets_T[:3]},
    ),
    Mistake(
        "advantages_T must have shape",
        inputs={"advantages_T": VALID.advantages_T[:, None]},
    ),
    Mistake(
        "old_logprobs_T must have shape",
        inputs={"old_logprobs_T": VALID.old_logprobs_T[:1]},
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.message)
def test_an_argument_that_is_not_allowed_is_named(
    mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    problem = replace(VALID, **mistake.inputs)
    with pytest.raises(ValueError, match=mistake.message):
        problem.policy_loss(**mistake.options)


PER_TOKEN = [one.name for one in fields(losses.TokenBatch) if one.name.endswith("_T")]


@pytest.mark.parametrize("name", PER_TOKEN)
def test_one_number_does_not_stand_for_those_of_all_tokens(name: str) -> None:
    values = torch.zeros(4, dtype=VALID.hidden_TH.dtype)
    given = dict.fromkeys(PER_TOKEN, values) | {"targets_T": VALID.targets_T}
    given[name] = given[name][:1]
    with pytest.raises(
        ValueError, match=rf"^{name} must have shape \(4,\), got \(1,\)"
    ):
        losses.policy_loss(VALID.hidden_TH, VALID.head_VH, losses.TokenBatch(**given))


class TestTheEnvironmentVariable:
    @pytest.mark.parametrize(
        ("value", "argument", "path"),
        [
            ("", None, "chunked"),
            ("reference", None, "reference"),
            ("reference", "chunked", "chunked"),
        ],
    )
    def test_it_forces_a_path_unless_an_argument_does(
        self, value: str, argument: str | None, path: str, monkeypatch
    ) -> None:
        monkeypatch.setenv("COEVOLVE_LOSS_PATH", value)
        assert VALID.policy_loss(path=argument).path == path

    def test_an_unknown_path_is_refused(self, monkeypatch) -> None:
        monkeypatch.setenv("COEVOLVE_LOSS_PATH", "fastest")
        message = "path of the loss must be one of.*'fastest'"
        with pytest.raises(ValueError, match=message):
            selective_logprobs(VALID.hidden_TH, VALID.head_VH, VALID.targets_T)
