"""Two recipes: training as described in the paper, and as in the authors' released code (ledger D1-D16, D18).

The released code is AsaCooperStickland/Bert-n-Pals. Every difference is a field, so each can be switched separately:
`RunConfig(recipe="paper", recipe_options={"round_robin_advances": False})`.
"""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from palslib.common.names import check_name
from palslib.common.settings import Number, settings
from palslib.methods.houlsby import Houlsby
from palslib.methods.low_rank import LowRank
from palslib.methods.method import Method, nearest_divisor
from palslib.methods.pal import PAL


@settings(part="recipe")
class Recipe:
    """The choices in which the released code and the paper (or good practice) differ; the defaults are the paper's.

    Where both agree there is no field: STS-B's labels are divided by 5, with a squared error on a linear output (D16).
    """

    round_robin_advances: bool = True
    """D1. False: round robin never leaves the first task."""
    dropout: Literal["throughout", "until evaluated"] = "throughout"
    """D2. Or `until evaluated`: evaluation leaves the model in eval mode for good."""
    correlations: Literal["whole split", "batches of 8"] = "whole split"
    """D3. Or `batches of 8`: Matthews and Pearson are means over batches, and a NaN average saves no best model."""
    order: Literal["reshuffled", "replayed"] = "reshuffled"
    """D4. Or `replayed`: every pass repeats the batches of the first one, of which the last is partial."""
    sizes: Literal["loaded", "official", "released"] = "loaded"
    """D5. Sizes for the probabilities: of the data `loaded`, GLUE's `official` ones, or the `released` constants."""
    pal_heads: Annotated[int, Field(ge=1)] = 12
    """D6. Attention heads of a PAL, 6 in the released code; if s is not divisible by it, the nearest divisor of s."""
    pal_activation: Literal["identity", "gelu"] = "identity"
    """D6. `gelu`: an activation after V^D."""
    low_rank_activation: Literal["identity", "gelu"] = "identity"
    """D7. `gelu`: an activation between the two matrices."""
    init: Literal["identity", "normal"] = "identity"
    """D8. `normal`: N(0, 0.02) for all added matrices and for gains and shifts of added layer norms."""
    houlsby_second: Literal["serial", "parallel"] = "serial"
    """D9. `parallel`: the adapter after the feed-forward reads the attention's output."""
    bias_correction: bool = True
    """D10. Adam's bias correction."""
    epsilon: Annotated[Number, Field(gt=0, le=1)] = 1e-8
    """D10. Adam's ε; 1e-6 in the released code."""
    clip: Literal["global", "each tensor"] = "global"
    """D10. `each tensor`: every gradient is clipped to the norm by itself."""
    decay: Literal["linear", "jump", "constant"] = "linear"
    """D11. `jump`: the first rate is 0, and after warm-up w it is 1 - step / steps: it falls at once from 1 to 1 - w.
    `constant` (not in the ledger): no decay after warm-up, for tasks that are trained one after another."""
    step_counter: Literal["global", "per tensor"] = "global"
    """D12. `per tensor`: the schedule counts each tensor's own updates."""
    inactive: Literal["untouched", "drift"] = "untouched"
    """D12. `drift`: gradients are reset to zero, not None, so parameters of other tasks decay and move by momentum."""
    metrics: Literal["glue", "released"] = "glue"
    """D13. `released`: only matched MNLI, only accuracy for MRPC and QQP, only Pearson, of scores clipped to [0, 1]."""
    padding: Literal["longest", "max_length"] = "longest"
    """D14. `max_length`: every batch is padded to this length, which changes only what dropout draws."""
    frozen_norms: Literal["frozen", "trained"] = "frozen"
    """D15. `trained`: freezing the backbone leaves its layer norms trainable."""
    decay_lhuc: bool = False
    """D15. Weight decay on LHUC's vectors."""
    houlsby_size: Annotated[int, Field(ge=1)] = 64
    """D15. Bottleneck size m of Houlsby adapters with `size="paper"`; 50 in the released code."""
    ties: Literal["first", "second"] = "first"
    """D18. Which text of a pair is one word piece shorter where both are cut and an odd number of pieces is left:
    `first` (the tokenizer's own rule: the shorter text or, of equal ones, the first), or `second`, as in the released
    code."""

    def apply(self, method: Method, named: set[str] = frozenset()) -> Method:
        """The method as this recipe builds it: where the recipe departs from what is published, it changes options that
        are as published. Those that the user has `named` stay as they are."""
        changed = {}
        if self.init == "normal" and "init" in method.options():
            changed["init"] = "normal"
        if self.frozen_norms == "trained" and method.freeze == "backbone":
            changed["freeze"] = "backbone but norms"
        if isinstance(method, PAL) and self.pal_heads != 12:  # 12: the method's own, fitted to a budget or not
            changed["heads"] = nearest_divisor(method.size, self.pal_heads)
        if isinstance(method, PAL) and self.pal_activation == "gelu":
            changed["activation"] = "gelu"
        if isinstance(method, LowRank) and self.low_rank_activation == "gelu":
            changed["activation"] = "gelu"
        if isinstance(method, Houlsby) and method.second == "serial":
            changed["second"] = self.houlsby_second
        if isinstance(method, Houlsby) and method.size == 64:
            changed["size"] = self.houlsby_size
        return method.with_options(**{option: value for option, value in changed.items() if option not in named})


RECIPES = {
    "paper": Recipe(),
    "released": Recipe(
        round_robin_advances=False,
        dropout="until evaluated",
        correlations="batches of 8",
        order="replayed",
        sizes="released",
        pal_heads=6,
        pal_activation="gelu",
        low_rank_activation="gelu",
        init="normal",
        houlsby_second="parallel",
        bias_correction=False,
        epsilon=1e-6,
        clip="each tensor",
        decay="jump",
        step_counter="per tensor",
        inactive="drift",
        metrics="released",
        padding="max_length",
        frozen_norms="trained",
        decay_lhuc=True,
        houlsby_size=50,
        ties="second",
    ),
}


def get_recipe(name: str, **options) -> Recipe:
    """The recipe of this name, with the fields in `options` changed."""
    return replace(RECIPES[check_name("recipe", name, RECIPES)], **options)


def rate_factor(step: int, steps: int, warmup: float, decay: str = "linear") -> float:
    """The learning rate of update `step` (from 0) as a fraction of its peak.

    With x = `step` / `steps` it rises linearly to 1 over the fraction w = `warmup` of the steps, a step ahead of x / w,
    then falls linearly to 0 at the end: (1 - x) / (1 - w). With `jump`, as in the released code (ledger D11), it is
    x / w, so that the first update does nothing, then 1 - x. With `constant` it stays at 1 after warm-up.
    """
    if decay == "jump":
        x = step / steps
        return x / warmup if x < warmup else 1.0 - x
    x = (step + 1) / steps
    if decay == "constant":
        return min(1.0, x / warmup) if warmup else 1.0
    return min(1.0, x / warmup if x < warmup else max(0.0, 1.0 - step / steps) / (1.0 - warmup))
