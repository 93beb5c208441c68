"""The optimiser of the released code, with a switch for each of its peculiarities (ledger D10-D12).

AdamW's update with or without bias correction, gradients clipped for each tensor or together, and a schedule that
counts the updates of each tensor or all steps. Without peculiarities torch's fused AdamW is used.
"""

from collections.abc import Callable, Collection
from functools import partial

import torch

from palslib.methods.pal import ProjectedAttention
from palslib.plan.config import RunConfig
from palslib.plan.recipes import Recipe, rate_factor


class ReleasedAdam(torch.optim.Optimizer):
    """Adam with decoupled weight decay: p <- p - rate · (m̂ / (√v̂ + ε) + λ p)."""

    def __init__(
        self,
        params,
        lr: float,
        rate_factor: Callable[[int], float] | None = None,
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
        clip_each: float | None = 1.0,
        thirds: Collection[int] = (),
    ):
        """
        Args:
            rate_factor: the schedule as a function of a tensor's own number of updates, from 0 (ledger D12); None where
                the loop sets `lr` itself.
            clip_each: the norm to which each tensor's gradient is clipped separately (ledger D10); None: no clipping.
            thirds: ids of parameters in which query, key and value are stacked. The released code has three
                matrices and clips each by its own norm, so here each third is clipped by itself.
        """
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": eps, "weight_decay": weight_decay})
        self.rate_factor, self.bias_correction, self.clip_each = rate_factor, bias_correction, clip_each
        self.thirds = frozenset(thirds)

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every tensor that has a gradient."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad
                if self.clip_each is not None:
                    parts = grad.chunk(3) if id(p) in self.thirds else [grad]
                    grad = torch.cat([g * (self.clip_each / (g.norm() + 1e-6)).clamp(max=1.0) for g in parts])
                state = self.state[p]
                if not state:
                    state.update(updates=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                m, v, t = state["m"], state["v"], state["updates"]
                m.lerp_(grad, 1 - beta1)
                v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                m_hat = m / (1 - beta1 ** (t + 1)) if self.bias_correction else m
                v_hat = v / (1 - beta2 ** (t + 1)) if self.bias_correction else v
                rate = group["lr"] * (self.rate_factor(t) if self.rate_factor else 1.0)
                p.sub_(rate * (m_hat / (v_hat.sqrt() + group["eps"]) + group["weight_decay"] * p))
                state["updates"] = t + 1


def clip_gradients(parameters, most: float) -> None:
    """Scales all gradients so that their joint norm is at most `most`; for a sparse gradient, only the rows present."""
    gradients = []
    for p in parameters:
        if p.grad is not None:
            p.grad = p.grad.coalesce() if p.grad.is_sparse else p.grad
            gradients.append(p.grad.values() if p.grad.is_sparse else p.grad)
    norm = torch.nn.utils.get_total_norm(gradients)
    torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0))


class RowGradients:
    """Dense gradients of embeddings, in which only the rows in use are cleared and written.

    A batch uses a few hundred of BERT's 30,522 word embeddings. AdamW moves all of them, because of its averages, but
    clearing and filling the whole gradient took a fifth of a step.
    """

    def __init__(self):
        self._kept: dict[torch.nn.Parameter, tuple[torch.Tensor, torch.Tensor]] = {}  # the gradient, the rows in use

    def densify(self, parameters) -> None:
        """Replaces each sparse gradient by a dense one."""
        for p in parameters:
            if p.grad is None or not p.grad.is_sparse:
                continue
            sparse = p.grad.coalesce()
            rows = sparse.indices()[0]
            if p in self._kept:
                dense, before = self._kept[p]
                dense.index_fill_(0, before, 0)
            else:
                dense = torch.zeros_like(p)
            self._kept[p] = dense.index_copy_(0, rows, sparse.values()), rows
            p.grad = dense


def make_optimizer(model, config: RunConfig, recipe: Recipe) -> torch.optim.Optimizer:
    """Fused AdamW, or `ReleasedAdam` where the recipe asks for one of its peculiarities (ledger D10, D12)."""
    groups = model.parameter_groups(config.weight_decay, recipe.decay_lhuc, config.adaptation_rate)
    for group in groups:
        group["lr"] = config.learning_rate * group["multiple"]
    if recipe.bias_correction and recipe.clip == "global" and recipe.step_counter == "global":
        return torch.optim.AdamW(groups, lr=config.learning_rate, eps=recipe.epsilon, fused=True)
    factor = partial(rate_factor, steps=config.steps, warmup=config.warmup, decay=recipe.decay)
    return ReleasedAdam(
        groups,
        config.learning_rate,
        factor if recipe.step_counter == "per tensor" else None,
        eps=recipe.epsilon,
        bias_correction=recipe.bias_correction,
        clip_each=config.clip if recipe.clip == "each tensor" else None,
        thirds={id(p) for m in model.modules() if isinstance(m, ProjectedAttention) for p in m.qkv.parameters()},
    )
