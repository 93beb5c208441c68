"""The embedded miniature GLUE (and minBERT's three tasks): template English, generated offline, always the same.

What it is: stand-ins with the columns, label order, class balance and size ratios of GLUE (Wang et al. 2019), whose
MNLI / RTE = 157.7 is what makes sampling matter (BERT and PALs, section 4.1). Every task can be learned; none is solved
by one word, by length or by shared words; a few labels are wrong on purpose. What it is not: GLUE. A number measured
here shows that code runs and learns; it says nothing about language.
How: an event is a dict (who did what to what, where, when). `clause` puts it into words, `reword` keeps its meaning,
`blur` makes it vaguer, `contradict` reverses it. A task is one function (rng, label, genre) -> texts. Texts of a
pair are about the same occasion, so "the cook bought a dog" contradicts "the cook sold a dog".
"""

from __future__ import annotations

import random
import zlib
from itertools import accumulate

from palslib.common.later import pd
from palslib.common.names import check_name
from palslib.data.glue import TRAIN_SIZES
from palslib.data.lexicon import IRREGULAR, OPPOSITE, SAME, VAGUE, WORDS

SYNTHETIC_DEV_SIZE = 120  # rows of every validation split: divides into halves and thirds
LABEL_NOISE = 0.04  # share of rows, in every split, that get a wrong label


def pick(rng, options):
    """A random one of `options` (or of a lexicon section's words). Only rng.random() is the same in every Python."""
    options = WORDS[options] if isinstance(options, str) else options
    return options[int(rng.random() * len(options))]


def inflect(word, suffix):
    """Adds "s" or "ed": inflect("compass", "s") is "compasses", inflect("love", "ed") is "loved"."""
    if word[-1] == "y" and word[-2] not in "aeiou":
        word = word[:-1] + "ie"
    regular = word.removesuffix("e") + "ed" if suffix == "ed" else word + "es"[not word.endswith(("s", "sh")) :]
    return IRREGULAR.get(f"{word}+{suffix}", regular)


def new_event(rng, genre):
    """Who did what to what, where and when, as a dict of words; some parts are left out at random."""
    event = {f: pick(rng, f"{genre} {f}") for f in ("agent", "thing", "place")} | {"count": "the", "number": "a"}
    event |= {f: pick(rng, f) for f in ("verb", "time")} | {"genre": genre, "negated": False}
    event |= {f: pick(rng, f) if rng.random() < 0.5 else "" for f in ("mood", "quality")}
    return event | {f: pick(rng, "number") for f in ("count", "number") if rng.random() < 0.35}


def phrases(event):
    """The event's agent, thing and verb as they stand in a sentence: "the rich cook", "two old cars", "bought"."""
    for count, adjective, noun in (("count", "mood", "agent"), ("number", "quality", "thing")):
        number, noun = event[count], event[noun]
        words = f"{event[adjective]} {noun if number in ('a', 'the') else inflect(noun, 's')}".strip()
        yield f"{'an' if number == 'a' and words[0] in 'aeiou' else number} {words}"
    yield inflect(event["verb"], "ed")


def clause(rng, event):
    """The event in words, active or passive, with the time at either end, without a full stop."""
    agent, thing, done = phrases(event)
    no, was = " not" if event["negated"] else "", "was" if event["number"] == "a" else "were"
    active = f"{agent} {'did not ' + event['verb'] if no else done} {thing}"
    core = active if rng.random() < 0.75 else f"{thing} {was}{no} {done} by {agent}"
    parts = (event["time"], core, event["place"]) if rng.random() < 0.3 else (core, event["place"], event["time"])
    return " ".join(filter(None, parts))


def reword(rng, event):
    """Same meaning: each word that has a synonym is replaced by it with probability 0.4."""
    return event | {f: pick(rng, SAME[w]) for f, w in event.items() if SAME.get(w) and rng.random() < 0.4}


def blur(rng, event, times=1):
    """Less information: a modifier is dropped, or a noun replaced by its kind, or a number by "several"."""
    for _ in range(times):
        field = pick(rng, [f for f, w in event.items() if w in VAGUE and f != "verb"])
        event = event | {field: VAGUE[event[field]]}
    return event


def differ(rng, event, field):
    """Another event: one field gets a new value that is not a synonym."""
    while (value := new_event(rng, event["genre"])[field]) in (event[field], *SAME.get(event[field], ())):
        continue
    return event | {field: value}


def contradict(rng, event, other):
    """An event that contradicts `other`: an opposite verb or adjective, another number, or a negation."""
    fields = ("verb", "verb", "mood", "quality", "count", "number", "negated")
    field = pick(rng, [f for f in fields if event[f] in OPPOSITE and other[f] in OPPOSITE])
    return event | {field: pick(rng, OPPOSITE[event[field]])}


def cola(rng, label, genre):
    """Agreement, verb forms, word order, argument structure; right and wrong sentences use the same words."""
    e, good, many = new_event(rng, genre), label == 1, rng.random() < 0.5
    (_, thing, done), agent, verb, place = phrases(e), e["agent"], e["verb"], e["place"]
    agents, (aux, perfect) = inflect(agent, "s"), pick(rng, (("had", True), ("did not", False), ("will", False)))
    text = pick(rng, (
        f"the {agents if many else agent} {place} often {verb if many == good else inflect(verb, 's')} {thing}.",
        f"{'these' if many else 'this'} {agents if many == good else agent} {done} {thing} {place}.",
        f"the {agent} {aux} {done if perfect == good else verb} {thing} {place}.",
        f"the {agent} {done} {thing} {place}." if good else f"the {agent} {thing} {done} {place}.",
        f"the {agent} {pick(rng, ('slept', 'laughed')) if many else done} {'' if many == good else thing} {place}.",
        f"what did the {agent} {verb} {'' if good else thing} {place}?",
    ))  # fmt: skip
    return [" ".join(text.split())]


def sst2(rng, label, genre):
    """Polarity words under negation and contrast: of two opposed clauses, the main one decides."""
    clauses, other = [], pick(rng, (label, 1 - label, 1 - label))
    for good in (label, other):
        deny = rng.random() < 0.4
        be = pick(rng, ("is not", "is never", "is hardly", "is far from") if deny else ("is", "is very", "is simply"))
        clauses.append(f"the {pick(rng, 'part')} {be} {pick(rng, 'praise' if good != deny else 'blame')}")
    same, opposed = ("{} and {} .", "{} ."), ("{1} , but {0} .", "although {1} , {0} .", "{0} , even if {1} .")
    return [pick(rng, same if label == other else opposed).format(*clauses)]


def sst5(rng, label, genre):
    """Four statements about a film in random order; the label is the number of positive ones."""
    statements = [sst2(rng, int(k < label), genre)[0] for k in range(4)]
    return [" ".join(sorted(statements, key=lambda _: rng.random()))]


def mrpc(rng, label, genre):
    """Two events told twice; if not equivalent, the agents are swapped, or two facts of one event are changed."""
    a, b = told = [new_event(rng, genre) | {"mood": "", "quality": ""} for _ in range(2)]
    b = b | {pick(rng, ("place", "time")): ""}
    if label == 0 and rng.random() < 0.3:
        a, b = (x | {f: y[f] for f in ("agent", "count")} for x, y in ((a, b), (b, a)))
    elif label == 0:
        a = differ(rng, contradict(rng, a, a), pick(rng, ("agent", "thing", "place", "time")))
    frame = pick(rng, ("{}, while {}.", "{} and {}."))
    return [frame.format(*(clause(rng, reword(rng, e)) for e in pair)) for pair in (told, pick(rng, ((a, b), (b, a))))]


def stsb(rng, label, genre):
    """The score, label / 5, is about the sum of the weights of the parts that the sentences share."""
    e = f = new_event(rng, genre) | {"quality": ""}
    room, weights = label / 5 + rng.random() * 0.6, {"agent": 1.2, "verb": 1.2, "thing": 1.2, "place": 0.7, "time": 0.7}
    for field, cost in sorted(weights.items(), key=lambda _: rng.random()):
        f, room = (f, room - cost) if cost <= room else (differ(rng, f, field), room)
    return [clause(rng, e) + ".", clause(rng, reword(rng, f)) + "."]


def qqp(rng, label, genre):
    """Two questions; duplicates share intent, verb and thing, other pairs differ in one of them."""
    e, intents = new_event(rng, genre), (("how", "way"), ("where", "place"), ("when", "time"), ("why", "reason"))
    intent = pick(rng, intents)
    wrong = [(pick(rng, [i for i in intents if i != intent]), e), (intent, differ(rng, e, "thing"))]
    wrong += [(intent, differ(rng, e, "verb")), (intent, e | {"verb": pick(rng, OPPOSITE[e["verb"]])})]
    other, f = (intent, e) if label == 1 else pick(rng, wrong)
    asks = ("{0} can I {2} {3}?", "what is the best {1} to {2} {3}?", "is there a good {1} to {2} {3}?")
    pairs = (intent, e), (other, reword(rng, f))
    return [pick(rng, asks).format(*how, x["verb"], list(phrases(x))[1]) for how, x in pairs]


def mnli(rng, label, genre):
    """Entailment (0) loses information, neutral (1) adds some, contradiction (2) reverses one thing."""
    e = new_event(rng, genre)
    vague = blur(rng, e, pick(rng, (0, 1, 2) if label == 2 else (1, 1, 2, 2, 3)))
    pair = (e, vague) if label == 0 else (vague, e)
    if label == 2:
        pair = sorted((e, contradict(rng, vague, e)), key=lambda _: rng.random())
    elif label == 1 and rng.random() < 0.6:  # each text says something that the other does not
        pair = blur(rng, e | {"place": ""}), blur(rng, e | {"time": ""}) | {"place": e["place"]}
    elif rng.random() < 0.25 and vague["count"] == e["count"]:  # "bought no animal" entails "bought no dog",
        pair = tuple(x | {"negated": True} for x in pair[::-1])  # and not the other way round
    return [clause(rng, pair[0]) + ".", clause(rng, reword(rng, pair[1])) + "."]


def rte(rng, label, genre):
    """As mnli, with neutral and contradiction in one class, and with an unrelated event in the premise."""
    premise, hypothesis = mnli(rng, label and pick(rng, (1, 2)), genre)
    return [f"{clause(rng, new_event(rng, genre))}, and {premise}", hypothesis]


def qnli(rng, label, genre):
    """A question and a sentence; one that is not an answer leaves out the place or time, or tells another event."""
    e = new_event(rng, genre) | {"mood": ""}
    q, asked = reword(rng, e), pick(rng, ("agent", "thing", "place", "time"))
    (agent, thing, done), tail = phrases(q), pick(rng, ("", q["place"], q["time"]))
    question = {"agent": f"who {done} {thing} {tail}", "thing": f"what did {agent} {q['verb']} {tail}"}
    question |= {"place": f"where did {agent} {q['verb']} {thing}", "time": f"when did {agent} {q['verb']} {thing}"}
    free = {"place": "time", "time": "place"}.get(asked)  # the part that the answer does not need
    if label == 1 and not (free and rng.random() < 0.6):
        e = differ(rng, e, pick(rng, [f for f in ("agent", "verb", "thing") if f != asked]))
    elif free and (label == 1 or rng.random() < 0.5):
        e[asked if label == 1 else free] = ""
    return [question[asked].strip() + "?", clause(rng, e) + "."]


TABLE = {  # task: generator, text columns, share of each label (of each score 0, 0.2, ..., 5)
    "cola": (cola, ("sentence",), (0.3, 0.7)),
    "sst2": (sst2, ("sentence",), (0.5, 0.5)),
    "mrpc": (mrpc, ("sentence1", "sentence2"), (0.32, 0.68)),
    "stsb": (stsb, ("sentence1", "sentence2"), (1 / 26,) * 26),
    "qqp": (qqp, ("question1", "question2"), (0.63, 0.37)),
    "mnli": (mnli, ("premise", "hypothesis"), (1 / 3,) * 3),
    "qnli": (qnli, ("question", "sentence"), (0.5, 0.5)),
    "rte": (rte, ("sentence1", "sentence2"), (0.5, 0.5)),
    "sst5": (sst5, ("sentence",), (0.2,) * 5),  # and the three tasks of the minBERT report
    "quora": (qqp, ("sentence1", "sentence2"), (0.63, 0.37)),
    "sts": (stsb, ("sentence1", "sentence2"), (1 / 26,) * 26),
}
_REAL = TRAIN_SIZES | {"sst5": 8_544, "quora": 141_506, "sts": 6_040}
SYNTHETIC_TRAIN_SIZES = {task: round(64 * _REAL[task] / _REAL["rte"]) for task in TABLE}
"""Task -> training rows, in the proportions of the real tasks; RTE has 64."""


def synthetic_split(task: str, split: str) -> pd.DataFrame:
    """One split of one task: its text columns, `label` (int; stsb: float, 0 to 5) and `idx`, as on the Hub.

    Splits: "train", "validation" (mnli: "validation_matched" and "validation_mismatched", which has other words). No
    text is both in training and in validation: its checksum decides where it belongs. Unknown names raise ValueError.
    """
    generate, columns, shares = TABLE[check_name("task of the synthetic data", task, TABLE)]
    splits = ("train", "validation_matched", "validation_mismatched") if task == "mnli" else ("train", "validation")
    training = check_name(f"split of {task}", split, splits) == "train"
    genres = ("town", "sea") if task != "mnli" else ("sea",) if split == "validation_mismatched" else ("town",)
    size = SYNTHETIC_TRAIN_SIZES[task] if training else SYNTHETIC_DEV_SIZE
    rng = random.Random(f"0-{task}-{split}")
    bounds = [share * size for share in accumulate(shares)][:-1]  # `sum` rounds differently from Python 3.12 on
    labels = [sum(row + 0.5 > bound for bound in bounds) for row in range(size)]
    rows = {}  # texts: label
    for label in sorted(labels, key=lambda _: rng.random()):
        texts = ()
        while not texts or texts in rows or any((zlib.crc32(t.encode()) % 5 > 0) != training for t in texts):
            texts = tuple(t[0].upper() + t[1:] for t in generate(rng, label, pick(rng, genres)))
        if rng.random() < LABEL_NOISE:
            label = pick(rng, [wrong for wrong in range(len(shares)) if wrong != label])
        rows[texts] = label / 5 if generate is stsb else label
    return pd.DataFrame([(*texts, rows[texts], i) for i, texts in enumerate(rows)], columns=[*columns, "label", "idx"])
