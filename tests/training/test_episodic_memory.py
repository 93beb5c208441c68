"""Gradient Episodic Memory: the projection against optimality and closed forms, the memory by hand, and real runs."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import check_same, small, stop_at, weights

from palslib.plan.sampling import TrainingPlan
from palslib.training.episodic_memory import (
    RIDGE,
    EpisodicMemory,
    constrained_parameters,
    inner_products,
    memory_gradient,
    project,
    solve_dual,
)
from palslib.training.loop import Run, train


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------------------------------------------ the projection
def check_optimal(g, G, margin):
    """The conditions of Karush, Kuhn and Tucker of the dual: v >= margin, w = Kv + c >= 0, and w = 0 where v > margin,
    for rows of length 1 and to the bound that the ridge proves. w is also G g̃, so the primal's constraints hold."""
    K, c = (G @ G.T).numpy(), (G @ g).numpy()
    v = solve_dual(K, c, margin)
    projected = project(g, G, margin)
    torch.testing.assert_close(projected, g + torch.from_numpy(v) @ G)
    lengths = np.sqrt(np.diag(K))
    w = (K @ v + c) / np.where(lengths > 0, lengths, 1)
    bound = 1.01 * RIDGE**0.5 * (float(g.norm()) + margin * lengths.sum())
    assert (v >= margin).all() and (w >= -bound).all() and (w[v > margin] <= bound).all()
    return projected


@st.composite
def problems(draw):
    """A random g and G of up to 8 tasks, some rows copies, multiples or sums of others, lengths from 1e-4 to 1e4."""
    t, P = draw(st.integers(1, 8)), draw(st.integers(1, 20))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    G = torch.randn(t, P, generator=generator, dtype=torch.float64)
    for j in range(1, t):
        match draw(st.sampled_from(["free", "free", "copy", "opposite", "sum", "zero"])):
            case "copy":
                G[j] = G[j - 1]
            case "opposite":
                G[j] = -G[0]
            case "sum":
                G[j] = G[:j].sum(0)
            case "zero":
                G[j] = 0
    G *= 10.0 ** torch.tensor([draw(st.integers(-4, 4)) for _ in range(t)], dtype=torch.float64)[:, None]
    return torch.randn(P, generator=generator, dtype=torch.float64), G, draw(st.sampled_from([0.0, 0.0, 0.5, 3.0]))


@settings(deadline=None, max_examples=150)
@given(problems())
def test_the_optimality_conditions_hold(problem):
    g, G, margin = problem
    if (G @ g < 0).any():
        check_optimal(g, G, margin)
    else:
        assert project(g, G, margin) is g


@pytest.mark.parametrize(
    ("g", "G", "margin", "expected"),
    [
        # Gg = (-2, -1). The first alone: (1, 0), whose product with the second is 1, so the second does not act.
        ([1, -2], [[0, 1], [1, 1]], 0, [1, 0]),
        # It takes 1/2 of the second; of g + (1/2, 1/2) = (3/2, -3/2) the first must take 3/2 away.
        ([1, -2], [[0, 1], [1, 1]], 0.5, [1.5, 0]),
        ([-1, -1, 1], [[1, 0, 0], [0, 1, 0]], 0, [0, 0, 1]),  # two that both act
        ([-1, -1, 1], [[1, 0, 0], [1, 0, 0]], 0, [0, -1, 1]),  # the same twice asks for no more than once
        ([3, 4], [[2, 0], [-1, 0]], 0, [0, 4]),  # opposite ones: nothing along them is allowed
        ([-1, 2], [[1, 0], [0, 0]], 0, [0, 2]),  # one without a gradient constrains nothing
        ([-1, 2], [[1, 0], [0, 0]], 0.5, [0, 2]),
    ],
)
def test_projections_by_hand(g, G, margin, expected):
    torch.testing.assert_close(project(tensor(*g), torch.tensor(G).double(), margin), tensor(*expected))


def test_float32_as_gradients_are(monkeypatch):
    """Precision of the solution, not of 32-bit sums: products with the memories are 0 to rounding, in chunks too."""
    A, B = torch.arange(14.0).view(2, 7), torch.arange(21.0).view(3, 7)
    with monkeypatch.context() as patch:
        patch.setattr("palslib.training.episodic_memory.CHUNK", 3)
        np.testing.assert_array_equal(inner_products(A, B), (A @ B.T).numpy())
    generator = torch.Generator().manual_seed(0)
    g, G = torch.randn(10_000, generator=generator), torch.randn(7, 10_000, generator=generator)
    g -= 0.1 * G.sum(0)
    projected = project(g, G)
    assert projected.dtype == torch.float32 and (inner_products(G, g[None]) < 0).all()
    products = inner_products(G, projected[None])[:, 0] / (g.norm() * G.norm(dim=1)).numpy()
    assert np.abs(products).max() < 1e-6
    torch.testing.assert_close(projected.double(), check_optimal(g.double(), G.double(), 0.0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("g", "G", "margin", "error", "words"),
    [
        ([math.nan, 0], [[1, 0]], 0, FloatingPointError, "gradient of the batch is not finite"),
        ([1, 0], [[0, math.inf]], 0, FloatingPointError, "gradient of a memory is not finite"),
        ([1, 0], [[1, 0]], -0.1, ValueError, "margin must be at least 0"),
    ],
)
def test_what_cannot_be_projected(g, G, margin, error, words):
    with pytest.raises(error, match=words):
        project(tensor(*g), torch.tensor(G, dtype=torch.float64), margin)


# ---------------------------------------------------------------------------------------------------------- the memory
def test_a_ring_of_the_latest():
    """Three places: rows 1 2 fill two, 3 4 the last and the first again; 4 and 2 lie there already; 5 takes the place
    of 2, the oldest."""
    memory = EpisodicMemory(TrainingPlan({"rte": 10, "cola": 30}, "sequential", 12, 4), 3)
    assert memory.seen == [] and memory.rows("cola").tolist() == []
    memory.store("cola", np.array([1, 2]))
    assert memory.rows("cola").tolist() == [1, 2]  # what was never stored is not there
    memory.store("cola", np.array([3, 4]))
    assert memory.rows("cola").tolist() == [4, 2, 3]
    memory.store("cola", np.array([4, 2]))
    assert memory.rows("cola").tolist() == [4, 2, 3]
    memory.store("cola", np.array([5]))
    assert memory.rows("cola").tolist() == [4, 5, 3]
    assert memory.seen == ["cola"] and memory.rows("rte").tolist() == []


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), st.integers(0, 12), st.sampled_from(["sequential", "round-robin", "proportional"]))
def test_contents_are_a_function_of_plan_and_step(size, step, schedule):
    order = TrainingPlan({"rte": 6, "cola": 9, "mrpc": 5}, schedule, 12, 4)
    stepped, replayed = EpisodicMemory(order, size), EpisodicMemory(order, size)
    for k in range(step):
        stepped.store(order.tasks[k], order.examples(k))
    replayed.replay(step, **stepped.counts())
    assert replayed.seen == stepped.seen and replayed.counts() == stepped.counts()
    for task in order.sizes:
        rows = stepped.rows(task)
        assert replayed.rows(task).tolist() == rows.tolist()
        assert len(set(rows)) == len(rows) <= min(size, order.sizes[task])


# ---------------------------------------------------------------------------------------------------------- real runs

TINY = {"method": "pals-204", "size": 24, "tasks": ("rte", "cola", "mrpc"), "schedule": "sequential", "steps": 9}
TINY |= {"batch_size": 8, "memory": 8, "memory_margin": 0.0}
config = partial(small, **TINY)


def stepped(folder, steps, **options):
    run = Run(config(folder, **options), folder)
    for _ in range(steps):
        run.train_step()
    return run


def flat(run, over="trained"):
    parameters = constrained_parameters(run.model, over)
    zeros = (torch.zeros_like(p) if p.grad is None else p.grad for p in parameters)
    return torch.cat([g.reshape(-1) for g in zeros]), parameters


@pytest.mark.parametrize(
    ("over", "options"),
    [
        ("trained", {"method": "shared", "size": "budget"}),
        ("shared", {"method": "pals-204"}),
        ("shared", {"method": "pals-204", "method_options": {"freeze": "backbone", "sharing": "layers and tasks"}}),
    ],
)
def test_a_step_against_the_memory_is_projected(tmp_path, over, options):
    """On a step of MRPC, ten times the gradient that would raise RTE's loss is mixed in: it is taken out again."""
    run = stepped(tmp_path, 6, memory_over=over, **options)
    run.model.eval()  # without dropout, the memory's gradient is the same every time
    task = run.plan.tasks[run.step]
    assert task == "mrpc" and run.memory.seen == ["rte", "cola"]
    batch = run.train_data[task].batch(run.plan.examples(run.step))
    remembered = run.train_data["rte"].batch(run.memory.rows("rte"))
    run.accelerator.backward(run.wrapped(task=task, **batch).loss)
    run.accelerator.backward(-10 * run.wrapped(task="rte", **remembered).loss)
    before, parameters = flat(run, over)
    G = torch.stack([memory_gradient(run, t, run.memory.rows(t), parameters) for t in ("rte", "cola")])
    assert (G @ before)[0] < 0
    rest = {n: p.grad.clone() for n, p in run.model.named_parameters() if p.grad is not None}
    checked, projected = run.memory.checked, run.memory.projected
    run.memory.constrain(run, task)
    after, _ = flat(run, over)
    assert (run.memory.checked, run.memory.projected) == (checked + 1, projected + 1)
    torch.testing.assert_close(after, project(before, G))
    assert ((G @ after) / (G.norm(dim=1) * before.norm()) > -1e-6).all()
    for name, p in run.model.named_parameters():
        if not p.requires_grad:
            assert p.grad is None
        elif over == "shared" and name.startswith(("heads.", "adaptations.")) and name in rest:
            assert torch.equal(p.grad, rest[name])


def test_gradient_of_a_memory_is_the_mean_over_its_rows(tmp_path):
    """20 rows in slices of 4 (batches of 8 in two parts) against one pass over all of them; `.grad` is not touched."""
    run = stepped(tmp_path, 0, micro_batches=2)
    run.model.eval()
    rows, parameters = np.arange(20), constrained_parameters(run.model, "trained")
    found = memory_gradient(run, "cola", rows, parameters)
    assert all(p.grad is None for p in parameters)
    run.model(task="cola", **run.train_data["cola"].batch(rows)).loss.backward()
    torch.testing.assert_close(found, flat(run)[0], atol=1e-6, rtol=1e-4)


def test_tasks_that_share_nothing_have_nothing_to_constrain(tmp_path):
    """Nothing is shared that is trained: `shared` is refused; over `trained` all products are 0, none is negative."""
    run = stepped(tmp_path / "run", 0)
    names = {id(p): n.split(".")[0] for n, p in run.model.named_parameters()}
    own = [{names[id(p)] for p in constrained_parameters(run.model, over)} for over in ("trained", "shared")]
    assert own == [{"backbone", "adaptations", "heads"}, {"backbone"}]
    frozen = {"method_options": {"freeze": "backbone"}}
    with pytest.raises(ValueError, match="share no trained parameters; use 'trained'"):
        train(config(tmp_path / "shared", memory_over="shared", **frozen), on_step=lambda run: pytest.fail("a step"))
    record = train(config(tmp_path / "trained", **frozen))
    assert record["memory"] == {"size": 8, "checked": 6, "projected": 0}


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path):
    """Of 18 steps, the 12 after the first task have a memory of another to look at, and some contradict it."""
    more = {"steps": 18, "keep": "last", "evaluate_every": 6, "evaluate_first": True}
    whole, settings = train(config(tmp_path / "whole", **more)), config(tmp_path / "parts", **more)
    memory = whole["memory"]
    assert (memory["size"], memory["checked"]) == (8, 12) and 0 < memory["projected"] <= 12
    assert train(settings, on_step=stop_at(13))["step"] == 13
    record = train(settings)
    assert record["memory"] == memory and record["history"] == whole["history"]
    assert [point["step"] for point in record["history"]] == [0, 6, 12, 18]
    check_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


def test_until_another_task_comes_memory_changes_nothing(tmp_path):
    """Bit for bit the run without: on the first task's steps, and wherever no gradient is projected."""
    plain, remembering = (stepped(tmp_path, 3, memory=size) for size in (0, 8))
    assert plain.memory is None and remembering.memory.checked == 0
    check_same(plain.model.state_dict(), remembering.model.state_dict())
    remembering.train_step()
    plain.train_step()
    same = all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), remembering.model.parameters(), strict=True))
    assert remembering.memory.checked == 1 and same == (remembering.memory.projected == 0)


def test_a_gradient_that_is_not_finite_stops_the_run(tmp_path):
    def spoil(run):
        if run.step == 3:
            run.model.heads["rte"].weight.data.fill_(math.inf)  # RTE's steps are over; its memory is used at once

    with pytest.raises(FloatingPointError, match="a memory is not finite at step 3, task 'cola'; last good checkpoint"):
        train(config(tmp_path), on_step=spoil)


def test_a_run_projects_with_its_margin(tmp_path):
    """The gradient -m against a memory m, margin 2: -m + max(2, 1) m = m."""
    run = stepped(tmp_path, 4, memory_margin=2.0)
    run.model.eval()
    parameters = constrained_parameters(run.model, "trained")
    memory = memory_gradient(run, "rte", run.memory.rows("rte"), parameters)
    for p, m in zip(parameters, memory.split([p.numel() for p in parameters]), strict=True):
        p.grad = -m.view_as(p)
    run.memory.constrain(run, "cola")
    torch.testing.assert_close(flat(run)[0], memory)
