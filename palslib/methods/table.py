"""The methods of the paper and of the reports, by name."""

from palslib.common.names import check_name
from palslib.methods.feed_forward import FeedForward
from palslib.methods.houlsby import Houlsby
from palslib.methods.lhuc import LHUC
from palslib.methods.low_rank import LowRank, Serial
from palslib.methods.method import Method
from palslib.methods.on_top import AttentionOnTop, BertLayerOnTop, FeedForwardOnTop
from palslib.methods.pal import PAL
from palslib.methods.whole import FeatureExtraction, FineTuned, Shared

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Shared("shared"),
        FineTuned("fine-tuned"),
        PAL("pals-204"),
        PAL("pals-no-sharing-84", size=84, sharing="none"),
        PAL("pals-276-top", size=276, layers="top"),
        PAL("pals-276-bottom", size=276, layers="bottom"),
        PAL("pals-shared-across-tasks-204", sharing="layers and tasks"),
        PAL("pal-common", sharing="everything"),
        LowRank("low-rank-100"),
        FeedForward("ffn-306"),
        LHUC("lhuc"),
        Serial("serial-100"),
        BertLayerOnTop("bert-layer-on-top"),
        AttentionOnTop("attention-on-top-204"),
        FeedForwardOnTop("ffn-on-top-408"),
        FeedForwardOnTop("ffn-on-top-252x2", inner=(252, 252)),
        Houlsby("houlsby-64"),
        Houlsby("houlsby-64-not-shared", adapters_per_layer=2, own_norms=True, classifier_layers=2),
        Houlsby("houlsby-64-3-shared", span=3),
        FeatureExtraction("feature-extraction"),
    )
}

LABELS = {
    "shared": "shared",
    "fine-tuned": "separate models",
    "pals-204": "PALs",
    "pals-no-sharing-84": "PALs, no sharing",
    "pals-276-top": "PALs, top half",
    "pals-276-bottom": "PALs, bottom half",
    "pals-shared-across-tasks-204": "PALs, a pair for all tasks",
    "pal-common": "one PAL for all tasks",
    "low-rank-100": "low rank",
    "ffn-306": "feed-forward within",
    "lhuc": "LHUC",
    "serial-100": "serial low rank",
    "bert-layer-on-top": "BERT layer on top",
    "attention-on-top-204": "attention on top",
    "ffn-on-top-408": "feed-forward on top, 1 inner",
    "ffn-on-top-252x2": "feed-forward on top, 2 inner",
    "houlsby-64": "Houlsby",
    "houlsby-64-not-shared": "Houlsby, not shared",
    "houlsby-64-3-shared": "Houlsby, 3-shared",
    "feature-extraction": "feature extraction",
}
"""Method -> its name in tables and figures, without its size."""


def get_method(method: "str | Method", **options) -> Method:
    """The method of that name (or the method itself), with changed options.

    >>> get_method("pals-204", size=120).label
    'pals (s=120)'
    """
    if not isinstance(method, Method):
        method = METHODS[check_name("method", method, METHODS)]
    return method.with_options(**options) if options else method
