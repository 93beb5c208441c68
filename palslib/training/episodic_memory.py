"""Gradient Episodic Memory: the gradient may not point against the gradients of other tasks' stored examples.

Lopez-Paz & Ranzato 2017 (https://arxiv.org/abs/1706.08840), section 3. g is the gradient of the current task's batch,
and row j of G the gradient of the loss on the memory of another task j seen so far:

    primal (eq. 8)    min_g̃  1/2 |g - g̃|²                 subject to  G g̃ >= 0
    dual   (eq. 11)   min_v  1/2 v'GG'v + (Gg)'v           subject to  v >= margin       then  g̃ = G'v + g

The primal has a variable for every parameter, the dual one for every task. The paper asks for v >= 0. The authors'
code asks for v >= margin: if it changes a gradient, it adds every memory's gradient to it, at least `margin` times.
"""

import numpy as np
import torch
from scipy.optimize import nnls

from palslib.common.precision import autocast

CHUNK = 2**22  # parameters converted to float64 at a time
RIDGE = 1e-10  # added to the squared length, 1, of a memory's gradient, so that equal ones can be told apart


def inner_products(A: torch.Tensor, B: torch.Tensor) -> np.ndarray:
    """AB' in float64, (s, P) and (t, P) to (s, t)."""
    parts = zip(A.split(CHUNK, 1), B.split(CHUNK, 1), strict=True)
    return sum((a.double() @ b.double().T for a, b in parts), A.new_zeros((), dtype=torch.float64)).cpu().numpy()


def solve_dual(K: np.ndarray, c: np.ndarray, margin: float = 0.0) -> np.ndarray:
    """The v (t,) that minimises 1/2 v'Kv + c'v subject to v >= margin, where K = GG' (t, t) and c = Gg (t,).

    With v = u + margin, the objective is 1/2 u'Ku + (c + K margin)'u + constant, u >= 0. That is non-negative least
    squares |Au - b|² with A'A = K and A'b = -(c + K margin), with the rows of G scaled to length 1. Where memories'
    gradients are linearly dependent (as when two are equal), K cannot be inverted: RIDGE, added to its diagonal,
    prevents that. The price is that an inner product may be slightly negative, but not below -√RIDGE |g + G'margin|.
    """
    lengths = np.sqrt(np.diag(K))
    lengths[lengths == 0] = 1.0  # a memory without gradient constrains nothing
    q = (c + K @ np.full(len(K), margin)) / lengths  # rows of G at length 1: losses may differ by orders of magnitude
    A = np.linalg.cholesky(K / np.outer(lengths, lengths) + RIDGE * np.eye(len(K))).T
    u, _ = nnls(A, np.linalg.solve(A.T, -q))
    return u / lengths + margin


def project(g: torch.Tensor, G: torch.Tensor, margin: float = 0.0) -> torch.Tensor:
    """The gradient nearest to g (P,) that has no negative inner product with a row of G (t, P).

    This is g itself if g has none. (With a margin it is further inside the constraints, no longer the nearest.) Raises
    ValueError for other shapes or a margin below 0, FloatingPointError for a value that is not finite.
    """
    if g.ndim != 1 or G.ndim != 2 or len(g) != G.shape[1]:
        raise ValueError(f"g must be (P,) and G (t, P), not {tuple(g.shape)} and {tuple(G.shape)}")
    if not 0 <= margin < float("inf"):
        raise ValueError(f"margin must be at least 0 and finite, not {margin!r}")
    if not (g.isfinite().all() and G.isfinite().all()):
        raise FloatingPointError(f"the gradient of {'a memory' if g.isfinite().all() else 'the batch'} is not finite")
    Gg = inner_products(G, g[None])[:, 0]
    if not (Gg < 0).any():
        return g
    v = solve_dual(inner_products(G, G), Gg, margin)
    return g + torch.from_numpy(v).to(g) @ G


class EpisodicMemory:
    """The latest examples of every task, as row numbers of its training data, and the constraint that they impose.

    Each task has a ring buffer: the n-th stored row is at position n modulo the buffer's length, in place of an older
    one. A row that is already in the buffer is not stored again, so a memory larger than the task's data holds each row
    once. The memory is a function of (plan, step).
    """

    def __init__(self, plan, size: int):
        """The memory for a `sampling.TrainingPlan`, with at most `size` examples of each task."""
        self.plan, self.size = plan, size
        self.checked = self.projected = 0  # steps with other tasks' memories; those with changed gradients
        self._rings = {task: np.zeros(min(self.size, n), dtype=np.int64) for task, n in self.plan.sizes.items()}
        self._stored = dict.fromkeys(self.plan.sizes, 0)  # how many rows were ever stored

    def store(self, task: str, rows: np.ndarray) -> None:
        """Stores the rows of a step in the memory of its task."""
        ring = self._rings[task]
        for row in rows:
            if row not in self.rows(task):
                ring[self._stored[task] % len(ring)] = row
                self._stored[task] += 1

    def rows(self, task: str) -> np.ndarray:
        """The rows in a task's memory, in the order of positions."""
        return self._rings[task][: self._stored[task]].copy()

    @property
    def seen(self) -> list[str]:
        """The tasks whose memory is not empty, in the plan's order."""
        return [task for task, stored in self._stored.items() if stored]

    def counts(self) -> dict[str, int]:
        """The size and the counts of the memory, for the run's record."""
        return {"size": self.size, "checked": self.checked, "projected": self.projected}

    def replay(self, step: int, **counts: int) -> None:
        """Restores a new memory after `step` steps of the plan; `counts` is what `counts()` returned at that step."""
        self.checked, self.projected = counts.get("checked", 0), counts.get("projected", 0)
        for k in range(step):
            self.store(self.plan.tasks[k], self.plan.examples(k))

    def constrain(self, run, task: str) -> None:
        """Projects the gradient of a `training.loop.Run`, between backward pass and clipping, on a step of `task`.

        A gradient of None counts as zero. Where no inner product is negative, nothing changes; otherwise all
        constrained parameters, including those of other tasks, get the projected gradient.
        Memory: about t + 4 times the constrained parameters during the call, for t other tasks, and none afterwards.
        Time: a forward and a backward pass over the stored rows of these tasks. Raises FloatingPointError, as the run
        does, for a gradient that is not finite.
        """
        others = [other for other in self.seen if other != task]
        if not others:
            return
        parameters = constrained_parameters(run.model, run.config.memory_over)
        g = _flat([p.grad for p in parameters], parameters)
        G = g.new_empty(len(others), len(g))
        for j, other in enumerate(others):
            G[j] = memory_gradient(run, other, self.rows(other), parameters)
        self.checked += 1
        try:
            projected = project(g, G, run.config.memory_margin)
        except FloatingPointError as error:
            run.stop(str(error), run.step)
        if projected is g:
            return
        self.projected += 1
        for p, new in zip(parameters, projected.split([p.numel() for p in parameters]), strict=True):
            if p.grad is not None and not p.grad.is_sparse:
                p.grad.copy_(new.view_as(p))
            elif p.grad is not None or new.any():
                p.grad = new.view_as(p).clone()


def constrained_parameters(model, over: str) -> list[torch.nn.Parameter]:
    """The parameters whose gradients are projected: all `trained` ones, or only those also `shared` by the tasks.

    Raises ValueError where tasks share none: then no task can disturb another.
    """
    names = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if over == "shared":
        names = {name: p for name, p in names.items() if not name.startswith(("adaptations.", "heads."))}
    if not names:
        raise ValueError("memory_over='shared': tasks of this method share no trained parameters; use 'trained'")
    return list(names.values())


def _flat(gradients, parameters) -> torch.Tensor:
    """The gradients concatenated to a vector (P,), with zeros for None."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat([torch.zeros_like(p).view(-1) if g is None else g.to_dense().reshape(-1) for g, p in pairs])


def memory_gradient(run, task: str, rows: np.ndarray, parameters: list) -> torch.Tensor:
    """The gradient (P,) of a task's mean loss over rows, with the precision and the dropout of the run.

    It is computed in parts as large as the run's micro-batches; each process takes its share of the rows.
    """
    accelerator, data = run.accelerator, run.train_data[task]
    world = accelerator.num_processes
    mine = rows[accelerator.process_index :: world]
    most = max(run.config.batch_size // run.config.micro_batches // world, 1)
    total = torch.zeros(sum(p.numel() for p in parameters), device=accelerator.device)
    for some in (mine[i : i + most] for i in range(0, len(mine), most)):
        batch = data.batch(some, device=accelerator.device)
        with autocast(run.precision, accelerator.device):
            # The unwrapped model and `autograd.grad` change neither `.grad` nor the state shared by processes.
            share = run.weight(task, some) * world / run.weight(task, rows) * run.config.task_weights.get(task, 1)
            loss = run.model(task=task, **batch).loss * share
        total += _flat(torch.autograd.grad(loss, parameters, allow_unused=True), parameters)
    return accelerator.reduce(total, "mean")
