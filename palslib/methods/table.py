"""The methods of the paper and of the reports, by name."""

from palslib.common.names import check_name
from palslib.methods import ia3, lora  # noqa: F401  (families without a row here: `own_method={"kind": "lora"}`)
from palslib.methods.feed_forward import FeedForward
from palslib.methods.houlsby import Houlsby
from palslib.methods.lhuc import LHUC
from palslib.methods.low_rank import LowRank, Serial
from palslib.methods.method import Method
from palslib.methods.on_top import AttentionOnTop, BertLayerOnTop, FeedForwardOnTop
from palslib.methods.pal import PAL
from palslib.methods.whole import FeatureExtraction, FineTuned, Shared

_TABLE = {
    Shared("shared"): "shared",
    FineTuned("fine-tuned"): "eight BERTs",
    PAL("pals-204"): "PALs",
    PAL("pals-no-sharing-84", size=84, sharing="none"): "PALs, no sharing",
    PAL("pals-276-top", size=276, layers="top"): "PALs, top half",
    PAL("pals-276-bottom", size=276, layers="bottom"): "PALs, bottom half",
    PAL("pals-shared-across-tasks-204", sharing="layers and tasks"): "PALs, a pair for all tasks",
    PAL("pal-common", sharing="everything"): "one PAL for all tasks",
    LowRank("low-rank-100"): "low rank",
    FeedForward("ffn-306"): "feed-forward within",
    LHUC("lhuc"): "LHUC",
    Serial("serial-100"): "serial low rank",
    BertLayerOnTop("bert-layer-on-top"): "BERT layer on top",
    AttentionOnTop("attention-on-top-204"): "attention on top",
    FeedForwardOnTop("ffn-on-top-408"): "feed-forward on top, 1 inner",
    FeedForwardOnTop("ffn-on-top-252x2", inner=(252, 252)): "feed-forward on top, 2 inner",
    Houlsby("houlsby-64"): "Houlsby",
    Houlsby("houlsby-64-not-shared", adapters_per_layer=2, own_norms=True, classifier_layers=2): "Houlsby, not shared",
    Houlsby("houlsby-64-3-shared", span=3): "Houlsby, 3-shared",
    FeatureExtraction("feature-extraction"): "feature extraction",
}
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
LABELS = {method.name: label for method, label in _TABLE.items()}
"""Method -> its name in tables and figures, without its size."""


def get_method(method: "str | Method", **options) -> Method:
    """The method of that name (or the method itself), with changed options.

    >>> get_method("pals-204", size=120).label
    'pals (s=120)'
    """
    if not isinstance(method, Method):
        method = METHODS[check_name("method", method, METHODS)]
    return method.with_options(**options) if options else method
