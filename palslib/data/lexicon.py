"""The words of the miniature GLUE by kind, with the synonyms, the opposites and the vaguer word of each."""

LEXICON = {  # section > a vaguer word for its entries: entries; a=b are synonyms, a/b opposites
    "verb": """buy=purchase/sell=auction, find=discover/lose=misplace, love=adore/hate=detest, push=shove/pull=tow,
praise=commend/criticise=condemn, lift=raise/lower, clean=wash/soil=stain, accept=welcome/refuse=reject""",
    "mood": "rich=wealthy/poor, young=youthful/old=elderly, happy=cheerful/sad=gloomy, polite=courteous/rude=impolite",
    "quality": "big=large/small=little, cheap/expensive=costly, pretty=lovely/ugly=hideous, quick=fast/slow=sluggish",
    "number > several": "two/three/four/five/six/seven",
    "time": "on Monday, on Friday, on Sunday, yesterday, last week, in spring, in winter, at noon, before dawn",
    "town agent > person": "doctor=physician, lawyer=attorney, boy=lad, teacher=instructor, writer=author, cook=chef",
    "town thing > animal": "dog=hound, rabbit=bunny, pig=hog, cat, horse, goat, parrot",
    "town thing > vehicle": "car=automobile, bicycle=bike, lorry=truck, tram, van, tractor",
    "town thing > instrument": "violin=fiddle, piano, drum, guitar, flute, trumpet",
    "town place": "in the park, at the market, near the station, behind the church, in the village, in Oslo, in Paris",
    "sea agent > person": "sailor=mariner, captain=skipper, scientist=researcher, pirate=buccaneer, diver, pilot",
    "sea thing > vessel": "ship=liner, boat=dinghy, ferry, yacht, canoe, raft",
    "sea thing > machine": "engine=motor, robot=android, crane=hoist, drone, pump, radio",
    "sea place": "on the beach, at the harbour, near the lighthouse, on the island, in Lisbon, on the deck",
    "part": "film, plot, story, script, acting, cast, ending, dialogue, music, comedy, drama, sequel, documentary",
    "praise": "brilliant, moving, funny, clever, gripping, charming, superb, elegant, delightful, wonderful, witty",
    "blame": "boring, silly, clumsy, predictable, tedious, awful, lifeless, shallow, annoying, pointless, dreary",
}
IRREGULAR = {"buy+ed": "bought", "sell+ed": "sold", "find+ed": "found", "lose+ed": "lost", "person+s": "people"}
WORDS, VAGUE, SAME, OPPOSITE = {}, {}, {}, {False: [True]}  # section: words; word: vaguer one, synonyms, opposites
for section, text in LEXICON.items():
    name, _, vague = section.partition(" > ")
    for sides in ([side.split("=") for side in entry.strip().split("/")] for entry in text.split(",")):
        for side in sides:
            WORDS.setdefault(name, []).extend(side)
            VAGUE |= dict.fromkeys(side, vague)
            SAME |= {word: [w for w in side if w != word] for word in side}
            OPPOSITE |= {word: [w for other in sides if other is not side for w in other] for word in side}
