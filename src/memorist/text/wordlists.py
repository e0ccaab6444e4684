"""English word lists: stop words, everyday words, technical words and first names.

The lists were written by hand for this project and are meant to be short: they say "this is not
rare", "this is technical" and "this is a person", not how often a word occurs.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")


def word_set(words: str) -> frozenset[str]:
    """Return the words of a list that is written as a text.

    >>> sorted(word_set("tea milk"))
    ['milk', 'tea']
    """
    return frozenset(words.split())


def word_table(groups: Mapping[T, str]) -> dict[str, T]:
    """Map each word to the key that its list stands under.

    >>> word_table({1: "one first", 2: "two"})
    {'one': 1, 'first': 1, 'two': 2}
    """
    return {word: key for key, words in groups.items() for word in words.split()}


def word_groups(groups: str) -> dict[str, str]:
    """Map each word of slash-separated groups to the first word of its group.

    >>> word_groups("big large/mom mum")
    {'big': 'big', 'large': 'big', 'mom': 'mom', 'mum': 'mom'}
    """
    return word_table({group.split()[0]: group for group in groups.split("/")})


# Stop words: they say nothing about what a text is about.
ENGLISH = word_set("""
    a about am an and any are aren't as at be because been being but by can can't cannot could
    couldn't did didn't do does doesn't doing don't for from had hadn't has hasn't have haven't
    having he he'd he'll he's her here hers herself him himself his how how's i i'd i'll i'm
    i've if in into is isn't it it's its itself just let's me might more most must my myself no
    nor not of on or our ours ourselves shall she she'd she'll she's should shouldn't so some
    such than that that's the their theirs them themselves then there there's these they they'd
    they'll they're they've this those to too us very was wasn't we we'd we'll we're we've were
    weren't what what's when when's where where's which while who who's whom whose why why's
    will with won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
    d ll m re s t ve
    """)
COMMON = word_set("""
    a able about above across actually add after afternoon again against age ago agree air all
    allow almost alone along already alright also although always am amazing among amount an and
    angry animal another answer any anybody anymore anyone anything anyway anywhere apart
    apartment apple are area arm around arrive art as ask asleep at aunt autumn away awesome
    baby back bad bag ball bank bar bath be beach beautiful because become bed bedroom beer
    before begin behind believe below beside best better between big bike bill bird birthday bit
    black blood blue board boat body book bore born boss both bottle bottom box boy bread break
    breakfast bring brother brown build burn bus business busy but buy by bye cake call calm
    came can candy cap car card care careful carry case cat catch cause center chair chance
    change cheap check cheese chicken child children chocolate choose christmas church cinema
    city class clean clear climb clock close clothes cloud coat coffee cold color colour come
    comfortable common company complete completely concert congratulations continue conversation
    cook cool corner cost could count country couple course cousin cover crazy cream cross cry
    cup cut dad daily dance dark date daughter day dead deal dear decide deep definitely desk
    different difficult dinner dirty discuss do doctor does dog done door double doubt down draw
    dream dress drink drive drop dry during each ear early earth east easy eat egg eight either
    eleven else email empty end enjoy enough enter especially etc even evening event ever every
    everybody everyone everything everywhere exactly example excellent except excite exciting
    excuse exercise expect expensive explain extra eye face fact fair fall family famous fan far
    farm fast fat father favorite favourite fear feel feeling feet fell felt few field fifteen
    fifty fight figure fill film final finally find fine finger finish fire first fish fit five
    fix floor flower fly follow food foot football for forest forever forget form forty forward
    found four free fresh friday friend friendly from front fruit full fun funny future game
    garden gave general get gift girl give glad glass go gold gone good goodbye got grandfather
    grandma grandmother grandpa great green ground group grow guess guy had hair half hall hand
    hang happen happy hard hardly has hat hate have he head health healthy hear heart heavy
    hello help her here herself hey hi high hill him himself his history hit hold holiday home
    homework honest honestly hope horse hospital hot hotel hour house how however huge hundred
    hungry hurry hurt husband i ice idea if ill imagine important impossible in inside instead
    interest interesting into invite is island issue it its itself job join joke juice jump just
    keep key kid kill kind king kitchen knee know lady lake land language large last late lately
    later laugh law lay lazy lead learn least leave leg less lesson let letter library lie life
    light like likely line list listen little live living long look lose lot lots loud love
    lovely low luck lucky lunch machine mad main make man many map mark market marry matter may
    maybe me meal mean meat medicine meet member men mess message met middle might milk mind
    mine minute miss mistake mom moment monday money month mood moon more morning most mother
    mountain mouse mouth move movie mr mrs much mum music must my myself name nature near nearly
    neck need neighbor neighbour neither nephew nervous never new news next nice niece night
    nine no nobody noise none noon nor normal north nose not note nothing notice now number
    nurse of off offer office often oh okay old on once one only open opinion or orange order
    other our out outside over own page pain paint pair paper parent parents park part party
    pass past pay peace pen people perfect perhaps person pet phone photo pick picture piece
    pizza place plan plane plant play please pleasure plenty pocket point police polite poor
    popular possible post potato practice prefer prepare present pretty price probably problem
    project promise proud pull push put queen question quick quickly quiet quit quite race radio
    rain raise ran rather reach read ready real really reason receive red relax remember rent
    repeat report rest restaurant return rice rich ride right ring rise river road room round
    run sad safe said salad salt same sand sandwich saturday save saw say school sea season seat
    second secret see seem sell send sense serious serve set seven several shall shape share she
    shine ship shirt shoe shop short should shoulder shout show shower shut sick side sign silly
    simple since sing single sister sit six size skin sky sleep slow slowly small smart smell
    smile smoke snow so soft some somebody somehow someone something sometimes somewhere son
    song soon sorry sort sound soup south space speak special spend sport spot spring stand star
    start stay step still stomach stone stop store storm story straight strange street strong
    stuff stupid such sugar suit summer sun sunday sunny support suppose sure surprise sweet
    swim table take talk tall taste taxi tea teach teacher team tell ten terrible test than
    thank thanks that the their them themselves then there these they thin thing think third
    thirsty thirteen thirty this those though thousand three through throw thursday ticket tidy
    tie till time tiny tired to today together toilet tomorrow tonight too tooth top touch
    toward town toy train travel tree trip trouble true trust try tuesday turn twelve twenty
    twice two type ugly uncle under understand unfortunately until up upset us use used useful
    usual usually vacation vegetable very view village visit voice wait wake walk wall want war
    warm was wash watch water way we wear weather wednesday week weekend weird welcome well went
    were west wet what whatever when where whether which while white who whole whose why wife
    will win wind window wine winter wish with without woman women wonder wonderful wood word
    work world worry worse worst worth would wow write wrong yard yeah year yellow yep yes
    yesterday yet you young your yours yourself yummy zero zoo ok thx pls lol haha brother's
    didn doesn don isn wasn ain couldn wouldn shouldn hasn haven won ll ve re
    """)

TECHNICAL = word_set("""
    api async postgresql docker kubernetes vector embedding token schema algorithm ansible
    asyncio aws azure backend backoff backpropagation bash binary bytecode cache callback cdn ci
    cli codec commit compiler concurrency config container cron crud css csv daemon database
    datastore deadlock debug debugger deploy deployment dns dockerfile encryption endpoint enum
    eviction failover firewall firmware framework frontend gateway gcp gpu gradient grpc hash
    hashmap helm hostname html http https idempotent inference ingress jdbc json jvm jwt kafka
    kernel kubectl lambda latency linux localhost logging lru malloc middleware migration
    monorepo mutex mysql namespace ndarray nginx nosql numpy oauth onnx orm parser payload
    pipeline plugin pod postgres proxy python pytorch query queue rag rbac recursion redis
    refactor regex replica repo repository rest rollback router runtime rust schema sdk
    semaphore serverless shard sharding shell socket sql sqlite ssh ssl stacktrace stderr stdout
    subnet subprocess syntax tcp tensor terraform thread throughput tls tokenizer transformer
    typescript udp unicode uuid variable vm vpc webhook websocket workload xml yaml
    """)

GIVEN_NAMES = word_set("""
    aaron abdul adam adrian ahmed aisha alan alejandro alex alexander alice alina amanda amelia
    amir amy ana andrea andreas andrew angela anita anna anne anthony anton antonio arjun arthur
    barbara beatrice ben benjamin bob brian bruno camila carla carlos carmen caroline catherine
    charles charlotte chloe chris christian christina claire clara claudia daniel david deborah
    dennis diana diego dmitri dorothy dylan edward elena elias elizabeth ella emil emily emma
    eric erik eva fatima felix fernando fiona francesca francesco frank gabriel george giulia
    gustavo hannah hans harry hassan helen helena henry hiroshi hugo ian ibrahim igor ines
    ingrid irene isaac isabella ivan jack jacob james jan jane jason jean jennifer jessica jing
    joan joanna joe johan john jonas jonathan jorge jose joseph joshua juan julia julian karen
    karl kate katherine kenji kevin khalid klaus laura lauren leila lena leo leon liam lily
    linda lisa louis louise lucas lucia luis luke maja marco margaret maria marie mario mark
    marta martin mary mateo matthew max mei melanie mia michael michelle miguel mike mila
    mohammed monica nadia natalia natalie nathan nicholas nicolas nina noah nora oleg oliver
    olivia omar oscar pablo patricia patrick paul pedro peter philip pierre priya rachel rahul
    rebecca richard robert roberto rosa ryan samantha samuel sandra sara sarah sebastian sergei
    simon sofia sophia sophie stefan stephanie stephen steve susan sven tanya thomas tim tom
    tony valentina vera victor victoria vincent vladimir walter wei william yuki yusuf zoe
    """)

_ENDINGS = ("ing", "est", "ers", "ies", "ied", "es", "ed", "er", "ly", "s")


@lru_cache(maxsize=1 << 14)
def is_common(word: str) -> bool:
    """Return whether a lower-case word, or its plain form, is an everyday word.

    >>> is_common("walking"), is_common("cats"), is_common("idempotent")
    (True, True, False)
    """
    if word in COMMON:
        return True
    return not COMMON.isdisjoint(_stems(word.removesuffix("'s").replace("'", "")))


@lru_cache(maxsize=1 << 14)
def is_technical(word: str) -> bool:
    """Return whether a lower-case word, or its plain form, is technical.

    >>> is_technical("endpoints"), is_technical("refactored"), is_technical("dinner")
    (True, True, False)
    """
    return not TECHNICAL.isdisjoint(_stems(word))


def _stems(word: str) -> list[str]:
    """Return a word and what it may be without its ending."""
    found = [word]
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 2:
            stem = word.removesuffix(ending)
            found += (stem, f"{stem}e", f"{stem}y")
            if stem[-1] == stem[-2]:
                found.append(stem[:-1])
    return found
