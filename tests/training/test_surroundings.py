"""What else happens in a process changes nothing: a run's random numbers are its own, and so are its settings."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import pytest
import torch
from accelerate import Accelerator

from palslib import train
from palslib.methods.low_rank import LowRank, LowRankLayers
from palslib.plan.config import RunConfig
from palslib.training.accelerator import alone as alone_in_process
from palslib.training.evaluation import evaluate
from tests.training.small_runs import small, weights


def trained(folder, on_step=None, **options) -> torch.Tensor:
    """All weights after six steps, end to end."""
    train(small(folder, steps=6, keep="last", **options), on_step=on_step)
    return torch.cat([tensor.flatten() for _, tensor in sorted(weights(folder).items())])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights of a run of each of two seeds, around which nothing happens."""
    folder = tmp_path_factory.mktemp("alone")
    return [trained(folder / str(seed), seed=seed) for seed in (0, 1)]


def test_a_run_neither_reads_nor_moves_torchs_generator(tmp_path, alone):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(trained(tmp_path / "again"), alone[0])
    assert torch.equal(torch.rand(3), expected)


def test_two_runs_in_two_threads_are_what_they_are_alone(tmp_path, alone):
    """While a third thread draws random numbers, and sets torch's seed, all the time."""
    going = [True]

    def draw():
        while going:
            torch.manual_seed(1)
            torch.rand(3)

    with ThreadPoolExecutor(3) as pool:
        pool.submit(draw)
        try:
            both = list(pool.map(lambda seed: trained(tmp_path / str(seed), seed=seed), (0, 1)))
        finally:
            going.clear()
    assert all(map(torch.equal, both, alone))


class NoisyLayers(LowRankLayers):
    """Draws its weights, and noise in each step, in ways of its own from torch's generator."""

    def draw(self, std):
        for p in self.parameters():
            p.data = torch.randn_like(p) * std

    def parallel(self, layer, h, rows):
        return torch.nn.functional.dropout(super().parallel(layer, h, rows), 0.5, self.training)


class Noisy(LowRank, kind="noisy"):
    """A user's own method."""

    def build(self, encoder, pooler, shared=None):
        return NoisyLayers(self, encoder, pooler)


def test_a_users_method_that_draws_from_torchs_generator_is_seeded_too(tmp_path):
    """Also from step 3 on, where another process would have drawn other numbers before."""
    settings = {"method": Noisy("noisy", size=4), "size": None, "checkpoint_every": 3}
    torch.manual_seed(1)
    alone = trained(tmp_path / "alone", **settings)
    torch.manual_seed(2)
    train(small(tmp_path / "again", steps=6, keep="last", **settings), on_step=lambda run: run.step != 3)
    torch.manual_seed(3)
    assert torch.equal(trained(tmp_path / "again", **settings), alone)


def test_another_accelerator_in_the_process_changes_nothing(tmp_path, monkeypatch, alone):
    """Accelerate has one number of steps for all: here the user's, or of its environment, as for an evaluation."""
    for name, value in (("GRADIENT_ACCUMULATION_STEPS", "4"), ("MIXED_PRECISION", "bf16")):
        monkeypatch.setenv(f"ACCELERATE_{name}", value)

    def also(run):
        evaluate(run.model, run.dev_data)
        with Accelerator(gradient_accumulation_steps=8).accumulate():  # which leaves it in the midst of its steps
            pass

    assert torch.equal(trained(tmp_path / "again", also), alone[0])


def test_weights_are_cast_anew_in_each_step_also_within_another_autocast(tmp_path):
    """Which is switched off, as by a program's flag. (Torch keeps the weights that it has cast to the end of it.)"""
    expected = trained(tmp_path / "alone", precision="bf16")
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        assert torch.equal(trained(tmp_path / "within", precision="bf16"), expected)


@pytest.mark.parametrize(
    ("gpu", "method", "precision"), [(True, {}, "float32"), (False, {"kind": "mine"}, "float32"), (False, {}, "bf16")]
)
def test_a_second_run_is_refused_where_torch_has_one_state_for_both(monkeypatch, gpu, method, precision):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    config = RunConfig()
    object.__setattr__(config, "own_method", method)
    refused = pytest.raises(ValueError, match="another run of this process is under way")
    with alone_in_process(config, precision), refused, alone_in_process(config, precision):
        pytest.fail("two at once")
    with alone_in_process(config, precision), alone_in_process(RunConfig(), "float32") if not gpu else nullcontext():
        pass


@contextmanager
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "around", [float64, lambda: torch.autocast("cpu", torch.bfloat16), torch.no_grad, torch.inference_mode], ids="ABCD"
)
def test_surroundings_that_would_change_a_run_are_refused(tmp_path, around):
    with around(), pytest.raises(ValueError, match=r"train outside of torch.autocast .*float32"):
        trained(tmp_path / "run")
    assert not (tmp_path / "run").exists()
