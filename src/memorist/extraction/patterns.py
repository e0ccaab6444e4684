"""The sentences that the rules know, as data: how they begin, and what they tell of someone.

A pattern is matched at the beginning of a clause and says by its end where the part begins that
only the clause knows.
"""

import re
from typing import Literal, NamedTuple

Type = Literal[
    "preference", "profile", "relationship", "project", "commitment", "decision", "event", "other"
]


class ClauseRule(NamedTuple):
    """What a clause that begins like this is, and how sure that is."""

    type: Type
    confidence: float
    is_whole: bool  # the beginning says something by itself
    pattern: re.Pattern[str]


def _rule(type: Type, confidence: float, *patterns: str, is_whole: bool = False) -> ClauseRule:
    made = re.compile(rf"(?:{_flat('|'.join(patterns))})(?=[\s.,!]|$)", re.IGNORECASE)
    return ClauseRule(type, confidence, is_whole, made)


def _flat(pattern: str) -> str:
    """Join a pattern that is written over several lines."""
    return re.sub(r"\n\s*", "", pattern)


_ADVERB = (
    "(?:still |always |usually |often |mostly |sometimes |rarely |occasionally |never |mainly "
    "|regularly |now )?"
)
_AM = "I(?:['’]m| am)(?: not)? "
_KIN = """
    (?:(?:older|younger|little|big|elder|twin|best|good|old|new|late|oldest|youngest|eldest|only|
    close) ){0,2}
    (?:wife|husband|partner|girlfriend|boyfriend|fianc[ée]e?|spouse|mother|mom|mum|father|dad|
    parents|sisters?|
    brothers?|siblings?|sons?|daughters?|kids?|children|child|baby|twins|grandm(?:a|other)|
    grandp(?:a|father)|
    grandparents|aunt|uncle|cousins?|nephews?|nieces?|friends?|neighbou?rs?|roommates?|flatmates?|
    boss|manager|
    colleagues?|coworkers?|mentor|coach|teacher|doctor|dentist|therapist|landlord|in-laws|family|
    dogs?|cats?|pets?|
    pupp(?:y|ies)|kittens?|horses?|rabbits?|parrots?|turtles?|guinea pigs?|hamsters?)"""
_HAD = """
    (?:degree|diploma|master['’]?s|bachelor['’]?s|phd|mba|licen[cs]e|certificate|allergy|allergies|
    asthma|diabetes|
    migraines?|epilepsy|adhd|arthritis|anxiety|insomnia|house|flat|apartment|car|bike|boat|garden|
    farm|cabin|business|
    company|shop|startup|podcast|blog|channel|piano|guitar|violin|tattoos?|scar|job|account|
    subscription|membership|
    collection)"""
_IS = """
    (?:a |an )?(?:vegan|vegetarian|pescatarian|lactose intolerant|gluten intolerant|co?eliac|
    diabetic|asthmatic|
    colou?r-?blind|left-handed|right-handed|single|married|divorced|widowed|engaged|retired|
    unemployed|self-employed|
    pregnant|transgender|trans|gay|lesbian|bisexual|non-?binary|queer|deaf|blind|
    partially disabled|disabled|religious|
    catholic|muslim|jewish|buddhist|hindu|christian|atheist|only child|bilingual|introvert|
    extrovert|
    (?-i:[A-Z])[a-z]{2,12}(?:an|ese|ish|ch|i))"""
_JOB = """
    an? (?!(?:big |huge |massive |real |total )?fan\\b)(?:[\\w'’-]{1,20} ){0,3}
    (?:[\\w-]{2,20}(?:ist|ician|eer|grapher|smith|wright)|nurse|doctor|teacher|student|person|
    reader|user|advocate|
    learner|speaker|lover|enthusiast|graduate|survivor|lawyer|chef|cook|baker|writer|author|
    painter|singer|dancer|actor|actress|farmer|driver|pilot|trainer|coach|
    professor|tutor|manager|director|consultant|accountant|architect|designer|developer|programmer|
    researcher|analyst|
    librarian|barista|waiter|waitress|plumber|carpenter|electrician|mechanic|firefighter|soldier|
    veteran|officer|
    broker|banker|trader|founder|owner|freelancer|entrepreneur|contractor|intern|apprentice|
    gardener|hairdresser|
    barber|butcher|tailor|vet|paramedic|surgeon|midwife|caregiver|counsel+or|translator|
    interpreter|editor|producer|
    filmmaker|musician|politician|mother|mom|mum|father|dad|parent|grandmother|grandfather|twin|
    widower?|citizen|
    resident|native|collector|player|runner|cyclist|swimmer|climber|hiker|gamer|beginner|member|
    volunteer|fan|refugee|
    immigrant|foodie|bookworm|night owl|early bird|customer)s?\\b"""
_KNOWN_AS = """
    (?:(?:first|last|full|middle|maiden|work|home|mobile|private|current|new|native|star|shoe|
    blood|dress|ring|email|
    e-mail|phone|mailing|postal|toefl|ielts|gre|sat) ){0,2}(?:name|birthday|nickname|surname|
    e-?mail|number|address|
    age|height|weight|hometown|job|profession|occupation|employer|company|school|university|major|
    degree|religion|
    nationality|language|pronouns|diet|size|type|sign|timezone|time zone|gpa|score|salary|hobby|
    hobbies|handle|
    username|budget)"""
_HABIT = """
    eat|drink|read|run|walk|cook|travel|use|wear|go|take|smoke|play|sleep|shop|buy|order|watch|
    listen|exercise|bike|
    cycle|swim|sing|dance|hike|write|wake|get up|train|volunteer|donate|visit|sit|fly|commute|
    meditate|pray|skip|
    avoid"""
WEAK_PAST = _flat("""
    went|visited|attended|met|had|saw|took|made|ran|tried|watched|read|played|hosted|organi[sz]ed|
    volunteered|
    performed|painted|built|wrote|cooked|baked|hiked|camped|travel+ed|flew|gave|got|lost|found|
    signed up|bought|
    started|finished""")
PAST = _flat("""
    graduated|adopted|moved|relocated|joined|quit|retired|emigrated|enrolled|became|founded|
    co-founded|published|
    launched|won|passed my|failed my|broke (?:my|an?)|had (?:surgery|a baby|an operation|twins)|
    got (?:married|engaged|
    divorced|promoted|hired|fired|laid off|pregnant|accepted|my (?:degree|licen[cs]e|diploma)|
    a (?:new )?(?:job|dog|cat|puppy|kitten|car|tattoo|scholarship|promotion))|
    started (?:my|an?(?! few| couple)|working|learning|studying|playing)|opened (?:my|an?)|
    bought (?:my|an?)|sold my|
    lost my (?:job|father|dad|mother|mom|mum|brother|sister|wife|husband|partner|son|daughter|home)|
    gave birth|came out as|was (?:born|diagnosed|promoted|raised|hired|fired|laid off|elected|
    accepted)|grew up|
    worked as|studied|majored""")
_SINCE = """
    \\b(?:for|since) (?:\\w+ ){0,3}(?:years?|months?|weeks?|decades?|\\d{4}|\\w+day|january|
    february|march|april|may|
    june|july|august|september|october|november|december|childhood)"""
_VAGUELY = "(?!(?:playing|doing|trying|using|going|working|having|getting|making) (?:for|since)\\b)"
_COUNT = "no|an?|one|two|three|four|five|six|seven|eight|\\d{1,2}|some|twin"

RULES = (
    _rule(
        "preference",
        0.9,
        f"I {_ADVERB}(?:love|like|enjoy|prefer|adore|hate|dislike|detest|loathe)",
        "I (?:don['’]?t|do not|can['’]?t|cannot|never) (?:like|stand|enjoy|eat|drink|use|wear"
        "|trust)",
        "My (?:absolute |all-time |current )?(?:least )?favou?rite [^,;]{1,80}? (?:is|are)",
    ),
    _rule(
        "preference",
        0.85,
        f"""{_AM}(?:a (?:big |huge |massive )?fan of|fond of|keen on|into|interested in|
          passionate about|obsessed with|crazy about|afraid of|scared of|terrified of)""",
    ),
    _rule(
        "preference",
        0.85,
        """(?!it\\b|this\\b|that\\b|these\\b|those\\b)(?-i:[A-Z])[^,;]{1,60} (?:is|are)
          (?: one of| by far)? my (?:absolute |all-time )?(?:least )?favou?rites?""",
        is_whole=True,
    ),
    _rule(
        "preference",
        0.75,
        f"I (?:always|never|usually|often|mostly|sometimes|rarely|occasionally) (?:{_HABIT})",
    ),
    _rule("profile", 0.95, "I have an? [\\w ]{0,30}allergy", is_whole=True),
    _rule(
        "profile",
        0.95,
        f"{_AM}(?:allergic|intolerant) to",
        f"My (?:{_KIN}['’]s )?{_KNOWN_AS} (?:is|are)",
        "(?:Please )?call me",
    ),
    _rule(
        "profile",
        0.9,
        f"""{_AM}(?:{_IS}|{_JOB}|\\d{{1,3}}(?: years old)?(?=\\W*$)|\\d{{1,3}} years old|
          the (?:youngest|oldest|eldest|middle|only|first|second|third) (?:child|son|daughter|
          of))""",
        is_whole=True,
    ),
    _rule(
        "profile",
        0.9,
        f"""{_AM}(?:originally |now |currently )?(?:from|based in|living in|living with|
          working (?:as|at|for)|studying|majoring in|born)""",
        f"""I {_ADVERB}(?:live|reside|work(?: nights| days| part-time| full-time)? (?:as|at|for|in|
        with|from)|study|
          teach|speak|own|drive|coach|manage|come from|suffer from|belong to|volunteer (?:at|for|
          with))""",
    ),
    _rule(
        "profile",
        0.8,
        "I (?:play|use(?! for\\b)|run|lead|collect|wear|practice|practise|grow|breed|hold an?)",
        "I support",
        "I have never been to",
    ),
    _rule(
        "profile",
        0.8,
        f"""I (?:don['’]?t|do not) have (?:an?|any|many) (?:[\\w'’-]{{1,20}} ){{0,2}}
          (?:{_HAD}|{_KIN}|experience|restrictions)""",
        is_whole=True,
    ),
    _rule(
        "profile",
        0.8,
        f"""I (?:{_HABIT}) [^;]{{0,80}}\\b(?:every \\w+|daily|weekly|each \\w+|regularly|twice|
        once a|
          on weekends|for fun|by (?:bus|bike|car|train))""",
        is_whole=True,
    ),
    _rule(
        "relationship",
        0.9,
        f"I have (?:{_COUNT}) (?:[\\w'’-]{{1,20}} ){{0,2}}{_KIN}",
        "I(?:['’]ve| have) been (?:married|engaged|divorced|dating|with my)",
        is_whole=True,
    ),
    _rule(
        "profile",
        0.85,
        f"I have (?:an?|two|three|my own|\\d{{1,2}}) (?:[\\w'’-]{{1,20}} ){{0,3}}{_HAD}",
        f"I have {_HAD}",
        f"I(?:['’]ve| have) (?:been {_VAGUELY}\\w+ing|lived|worked|studied|taught"
        f"|owned) [^;]{{0,120}}{_SINCE}",
        is_whole=True,
    ),
    _rule(
        "relationship",
        0.85,
        f"""My {_KIN}(?:,? (?-i:[A-Z])[a-z]{{1,20}},?)? (?:is|are|lives?|works?|loves?|likes?|
          hates?|enjoys?|prefers?|has|have|studies|study|plays?|teaches|runs?|owns?|speaks?|
          passed away|died|was born|
          were born|moved|graduated|got married|got engaged|retired|turned|started)""",
    ),
    _rule(
        "project",
        0.8,
        """(?:My|Our) (?:team|company|department|project|startup|app|product) (?:uses?|runs? on|
          ships?|is (?:called|named|built|about|written))""",
    ),
    _rule(
        "decision",
        0.9,
        """(?:I|We)(?:['’]ve| have)? (?:finally |now )?(?:decided|chosen|chose|settled on|opted|
          picked|agreed (?:to|on))""",
    ),
    _rule(
        "commitment",
        0.85,
        f"""{_AM}(?:planning|training for|saving (?:up )?for|preparing for|learning|working on|
          aiming)""",
        "I (?:plan|intend|aim|promised|vowed) to",
        "My (?:[\\w-]{1,20} ){0,2}(?:goal|dream|plan|resolution|aim"
        "|ambition)s?(?: for [\\w ]{1,30})? (?:is|are)",
    ),
    _rule(
        "commitment",
        0.75,
        """I want to (?:be|become|start|learn|run|write|visit|move|study|open|build|travel|buy|
          lose|quit|own)""",
    ),
    _rule("event", 0.85, f"I(?:['’]ve| have)?(?: recently| finally)? (?:{PAST})", is_whole=True),
)
ASKED = (
    _rule("other", 0.85, "(?:I|My) (?:\\w+ )+?\\w+", is_whole=True),
)  # where somebody says "remember that …"
TIMED = (  # only where the clause says when
    _rule(
        "commitment",
        0.8,
        f"""{_AM}(?:going|gonna|meeting|visiting|flying|moving|starting|taking|seeing|having|
          hosting|leaving|getting)""",
        "I(?:['’]ll| will)",
        "I (?:have|need) to",
    ),
    _rule(
        "event",
        0.8,
        """My (?!(?:life|day|week|heart|mind)\\b)(?:[\\w'’-]{1,20} ){1,4}(?:is|are|starts?|begins?|
          ends?|was moved|has been moved|got moved|is due)""",
    ),
    _rule("event", 0.75, f"I(?: recently| finally)? (?:{WEAK_PAST})", "I have (?:an?|my)"),
)

LIKES_THE = re.compile(
    r"I \w+ (?:all )?the (?-i:[a-z])", re.IGNORECASE
)  # mostly something that was just seen

# What a clause must not say after its beginning: it points to what only the conversation knows.
VAGUE = re.compile(
    _flat("""
    \\b(?:here|there|stuff|things?|same|something|anything|everything|everyone|someone|nothing|
    one(?! \\w+s\\b)|such|idea|sound of|way|
    kind of|sort of|how|where|who|whatever|moment|feeling|fact that|say|think|hear|know|seeing|bit|
    forward|to (?:go|see|say|think|ask|tell|know|hear|thank|admit)|out of here|guys|wait|vibes?|
    look|recently|lately|
    the other day|just now|soon|this (?:morning|afternoon|evening)|earlier|day after tomorrow|
    (?:last|next|this) (?:mon|tues?|wed|thurs?|fri|sat|sun)|together|so \\w+|excited|awesome|
    amazing|cute|adorable|
    wonderful|incredible|proud|glad|happy|doing|currently|remember|a place|hard|on top|
    myself(?=\\W*$))\\b"""),
    re.IGNORECASE,
)
_PERIOD = "week(?:end)?|month|year|spring|summer|autumn|fall|winter"
TIME = re.compile(
    _flat(f"""
    \\b(?P<before>(?:by|until|till|since|from|before|after|about|around|
    roughly) )?(?P<time>(?:the )?
    day before yesterday|yesterday|today|tonight|tomorrow|last night|
    (?:on |this past |this coming |this |last |next )(?:monday|tuesday|wednesday|thursday|friday|
    saturday|sunday)|
    (?:this past |this coming |this |last |next )(?:{_PERIOD}|january|february|april|june|july|
    august|september|
    october|november|december)|
    (?:\\d{{1,3}}|an?|one|two|three|four|five|six|seven|eight|nine|ten|a few|a couple of) (?:day|
    week|month|
    year)s? ago)\\b"""),
    re.IGNORECASE,
)
