"""What a new statement changes of what was said before: only what it is about, and all of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memorist import aio
from memorist.scoped import ScopedClient


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[aio.Client]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as client:
        yield client


@pytest.fixture
def ana(client: aio.Client) -> ScopedClient:
    return client.scope("ana")


async def tell(
    client: aio.Client,
    ana: ScopedClient,
    *said: str,
    role: str = "user",
    jobs: bool = False,
) -> None:
    """Store each text as a turn of a session and a month of its own."""
    for month, text in enumerate(said, 1):
        at = datetime(2026, month, 3, 9, tzinfo=UTC)
        turn = {"role": role, "content": text, "session": f"s{month}", "at": at}
        await ana.remember([turn])
        if jobs:
            await client.run_jobs()


async def recalled(ana: ScopedClient, question: str) -> list[str]:
    return [hit.memory.text for hit in await ana.recall(question)]


async def current(ana: ScopedClient) -> list[str]:
    return [each.text for each in await ana.list() if each.valid_to is None]


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("My library card ends on 3 April.", "My bus pass ends on 9 August.", "When does my card end?"),
        ("Ole borrowed 30 kroner from me.", "Signe borrowed 80 kroner from me.", "How much did Ole borrow?"),
        ("I pay 15 euros a month for the allotment.", "I pay 22 euros a month for judo.", "How much is the allotment?"),
        ("The mail server listens on port 2525.", "The exporter listens on port 9100.", "Which port is for mail?"),
        ("We hired a gardener, her name is Wilma.", "I met the neighbor, her name is Ruth.", "Who is the gardener?"),
        ("My sister moved to Aarhus.", "My brother moved to Odense.", "Where does my sister live?"),
        ("My violin lesson is on Monday at 17:00.", "My cello lesson moved to Friday at 18:00.", "When is violin?"),
        ("We open the shop on 4 May.", "I signed up for the language exam on 30 May.", "When do we open the shop?"),
        ("Ida and I split up.", "Ida moved out last night.", "Did Ida and I split up?"),
    ],
)  # fmt: skip
async def test_what_is_true_of_another_thing_replaces_nothing(
    client: aio.Client, ana: ScopedClient, old: str, new: str, question: str
) -> None:
    await tell(client, ana, old, new)
    assert {old, new} <= set(await current(ana))
    assert (await recalled(ana, question))[0] == old


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("My library card ends on 3 April.", "My library card ends on 9 October now.", "When does my card end?"),
        ("I pay 15 euros for the allotment.", "The allotment went up to 19 euros.", "How much is the allotment?"),
        ("The mail server listens on port 2525.", "The mail server listens on 587 now.", "Which port is for mail?"),
        ("I swim 40 lengths on Sundays.", "up to 60 lengths now!", "How many lengths do I swim?"),
        ("My violin lesson is on Monday at 17:00.", "My violin lesson moved to Friday at 18:00.", "When is violin?"),
    ],
)  # fmt: skip
async def test_another_value_of_the_same_thing_replaces_the_older_one(
    client: aio.Client, ana: ScopedClient, old: str, new: str, question: str
) -> None:
    await tell(client, ana, old, new)
    assert await current(ana) == [new]
    assert await recalled(ana, question) == [new]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Mein Zahnarzttermin ist am 4. Juni.", "Mein Friseurtermin ist am 9. Juni."),
        ("Der Internetvertrag kostet jetzt 35 Euro.", "Der Gasvertrag kostet jetzt 80 Euro."),
        ("Mein Kurs bei der Volkshochschule ist montags.", "Mein Schwimmkurs ist freitags um 8 Uhr."),
        ("Die Musikschule kostet 85 Euro im Monat.", "Das Schwimmbad kostet 40 Euro im Monat."),
        ("Mi tía tiene 61 años.", "Mi abuelo tiene 88 años."),
        ("Mon fils a 12 ans.", "Ma fille a 7 ans."),
        ("Le loyer de la cave est de 45 euros.", "Le loyer du studio est de 610 euros."),
        ("Mi clase de guitarra es los martes a las 16:00.", "Mi clase de dibujo es los viernes a las 19:00."),
        ("La factura del gas es de 70 euros.", "La factura del agua es de 25 euros."),
        ("A conta do gás é 42 euros.", "A conta da internet é 31 euros."),
        ("Il corso di ceramica è il martedì alle 20.", "Il corso di inglese è il venerdì alle 18."),
        ("La tessera scade nel 2028.", "Il passaporto scade nel 2033."),
    ],
)  # fmt: skip
async def test_what_is_true_of_another_thing_replaces_nothing_in_other_languages(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert {old, new} <= set(await current(ana))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Der Gasvertrag kostet 80 Euro.", "Der Gasvertrag kostet jetzt 95 Euro."),
        ("Le loyer du studio est de 610 euros.", "Le loyer du studio est passé à 640 euros."),
        ("Mi clase de dibujo es los viernes a las 19:00.", "Mi clase de dibujo ahora es los lunes a las 18:00."),
        ("A conta da internet é 31 euros.", "A conta da internet subiu para 36 euros."),
        ("Il corso di inglese è il venerdì alle 18.", "Il corso di inglese è spostato al lunedì alle 17."),
    ],
)  # fmt: skip
async def test_another_value_of_the_same_thing_replaces_the_older_one_in_other_languages(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert await current(ana) == [new]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Milhouse won a medal at the gala and felt very proud.", "Nelson looks forward to the gala."),
        ("Over the holidays, Nelson was building a raft and felt great.", "Milhouse bought a blue raft at the harbor."),
        ("Nelson watched a show at home and felt cozy.", "Milhouse is watching a show at home and feels bored."),
        ("I swam 2 km today.", "I swam 3 km today."),
        ("I normally get up at 6:30.", "I woke up at 11 today."),
        ("I visited Ghent on Sunday and had a great time.", "I visited Bruges on Saturday and felt bored."),
        ("Ich habe gestern 7 Stunden geschlafen.", "Ich habe heute 5 Stunden geschlafen."),
    ],
)  # fmt: skip
async def test_what_happened_once_or_to_somebody_else_replaces_nothing(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert {old, new} <= set(await current(ana))
    assert await ana.conflicts() == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("We live in Vejle.", "We moved to Ribe last week."),
        ("I drive a Corsa.", "I sold the Corsa and bought a Zoe yesterday."),
        ("We go to Skagen in May.", "They cancelled the ferry, so we felt sad: no trip to Skagen."),
        ("Tom is our choir leader.", "Ines is our new choir leader."),
        ("I weigh 71 kg.", "I weighed myself today: 68 kg."),
    ],
)  # fmt: skip
async def test_an_event_that_leaves_something_else_to_hold_replaces_what_held(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert new in {each.new.text for each in await ana.conflicts()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I'm feeling a bit down today.", "I'm feeling much better today!"),
        ("See you, Kim! I'll write to you soon.", "Sure, Kim. I'm always here for you."),
        ("Thanks, Ole! I appreciate your kind words.", "Thanks, Ole! That means a lot now."),
        ("Heute bin ich müde, danke!", "Ich bin jetzt sehr müde."),
        ("I'm doing well, thanks. How are you?", "I'm doing really great now. And you?"),
    ],
)
async def test_courtesies_and_moods_replace_nothing(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert {old, new} <= set(await current(ana))
    assert await ana.conflicts() == []


async def test_a_change_that_is_told_politely_still_replaces(
    client: aio.Client, ana: ScopedClient
) -> None:
    old, new = "My flight is at 9:40.", "Thanks! My flight is at 11:15 now."
    await tell(client, ana, old, new)
    assert await current(ana) == [new]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I live in Denmark.", "I live in Aarhus."),
        ("My aunt lives in Peru.", "My aunt lives in Cusco."),
        ("I live in Ghent.", "I live in Belgium."),
        ("Wir wohnen in Österreich.", "Wir wohnen in Graz."),
        ("Vivo en Chile.", "Vivo en Valdivia."),
        ("Moro no Uruguai.", "Moro em Salto."),
    ],
)
@pytest.mark.parametrize("as_note", [True, False], ids=["notes", "turns"])
async def test_a_place_in_a_country_refines_it(
    client: aio.Client, ana: ScopedClient, old: str, new: str, as_note: bool
) -> None:
    if as_note:
        for text in (old, new):
            await ana.remember(text)
    else:
        await tell(client, ana, old, new)
    assert {old, new} <= set(await current(ana))
    assert await ana.conflicts() == []


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("I live in Denmark.", "I live in Hamburg now.", "Where do I live?"),
        ("I live in Denmark.", "I live in Norway.", "Where do I live?"),
        ("Wir wohnen in Graz.", "Wir sind im Mai nach Linz gezogen.", "Wo wohnen wir?"),
        ("J'habite à Nantes.", "On a déménagé à Rennes en avril.", "Où est-ce que j'habite ?"),
        ("Vivo en Bilbao.", "Nos mudamos a Cádiz.", "¿Dónde vivo?"),
        ("Moro em Aveiro.", "Mudei-me para Coimbra.", "Onde moro?"),
        ("Moro em Recife.", "Mudei para São Paulo no mês passado.", "Onde moro?"),
        ("Abito a Pisa.", "Ci siamo trasferiti a Lecce.", "Dove abito?"),
        ("Ich trinke Alkohol.", "Ich trinke keinen Alkohol mehr.", "Trinke ich Alkohol?"),
        ("Ich jogge.", "Ich jogge nicht mehr.", "Jogge ich?"),
        ("Je mange du fromage.", "Je ne mange plus de fromage.", "Est-ce que je mange du fromage ?"),
        ("Bebo vino.", "Ya no bebo vino.", "¿Bebo vino?"),
        ("Eu corro.", "Não corro mais.", "Eu corro?"),
        ("Bevo birra.", "Non bevo più birra.", "Bevo birra?"),
        ("I'm vegan.", "I eat fish again since the summer.", "Do I eat fish?"),
        ("I'm allergic to nuts.", "I'm not allergic to nuts after all.", "Am I allergic to nuts?"),
        ("Ich bin allergisch gegen Nüsse.", "Ich bin doch nicht allergisch gegen Nüsse.", "Nüsse?"),
        ("Ma copine s'appelle Julie.", "J'ai rompu avec Julie.", "Julie ?"),
        ("Il mio ragazzo si chiama Davide.", "Io e Davide ci siamo lasciati.", "Davide?"),
        ("O meu namorado chama-se Rui.", "Acabei com o Rui.", "Rui?"),
        ("Fumo desde los 18.", "He dejado de fumar.", "¿Fumo?"),
        ("Fumo dieci sigarette al giorno.", "Ho smesso di fumare.", "Fumo?"),
        ("My daughter Iva is 6.", "Iva turned 7 today!", "How old is my daughter?"),
        ("I have a red Vespa.", "My Vespa got stolen last night.", "Do I have a Vespa?"),
        ("Budget for the kitchen is 8000.", "We had to raise the kitchen budget to 9500.", "Kitchen budget?"),
        ("Ich bin Vegetarierin.", "Seit Ostern esse ich wieder Fleisch.", "Esse ich Fleisch?"),
        ("Soy vegana.", "He vuelto a comer carne.", "¿Como carne?"),
        ("Ich arbeite bei Vela.", "Ich habe eine neue Stelle bei Lumen.", "Wo arbeite ich?"),
        ("My number is 555-0147.", "I have a new number: 555-0182.", "What is my number?"),
        ("My vet appointment is on May 6th.", "The vet had to reschedule me to May 13th.", "When is the vet?"),
        ("I work at Lumen.", "I got a new job! I start at Vela in June.", "Where do I work?"),
    ],
)  # fmt: skip
async def test_moves_and_negations_replace_what_was_so(
    client: aio.Client, ana: ScopedClient, old: str, new: str, question: str
) -> None:
    await tell(client, ana, old, new)
    assert await current(ana) == [new]
    assert await recalled(ana, question) == [new]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Vivo en Bilbao.", "Mi primo se mudó a Cádiz."),
        ("Wir wohnen in Graz.", "Wir sind nach Linz gefahren."),
        ("J'habite à Nantes.", "Si je déménage à Rennes, je vends le vélo."),
        ("I'm vegan.", "My wife eats fish again."),
        ("We live in Ghent.", "We moved to Postgres last week."),
        ("Moro em Aveiro.", "Mudei para a Vodafone."),
        ("We live in Ghent.", "Our office moved to Antwerp."),
        ("We live in Ghent.", "We're moving to Bruges in the summer of 2028."),
        ("My sister Bea is a pilot.", "My sister Ana quit her job as a vet."),
        ("I work at Lumen.", "I no longer work at the pub, too tiring next to uni."),
        ("Vivo en Bilbao.", "Ya no vivo en Cádiz, por suerte."),
        ("Vivo en Bilbao.", "Me mudaría a Cádiz sin dudarlo."),
        ("I work at Lumen.", "I got a new job offer from Vela."),
        ("Mi mujer tiene trabajo en una escuela.", "Conseguí un nuevo trabajo."),
        ("Mio padre cerca lavoro in un bar.", "Ho trovato un nuovo lavoro."),
    ],
)
async def test_a_move_of_somebody_else_or_a_trip_ends_nothing(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert old in await current(ana)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Ich wohne in Graz.", "Ich wohne in der Nähe vom Bahnhof."),
        ("Ich wohne in Wien.", "Ich wohne in Wien Neubau."),
        ("I live in Ghent.", "I live in Ledeberg, Ghent."),
        ("Moro em Aveiro.", "Moro na Rua Direita 8."),
        ("Abito a Pisa.", "Abito in Via Garibaldi 3."),
        ("J'habite en Bretagne.", "J'habite à Vannes, près du port."),
        ("Vivimos en España desde hace años.", "Vivo en Cádiz, cerca del mar."),
        ("Ich wohne in den Niederlanden.", "Ich wohne in Utrecht."),
    ],
)
async def test_a_more_precise_home_ends_nothing(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert old in await current(ana)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I'm vegetarian.", "I never eat fish."),
        ("I'm vegan.", "I see people eat meat all around me at work."),
        ("I eat chicken every day.", "I'm making vegan brownies for Ana."),
        ("I eat meat and love barbecue.", "I'm not vegetarian, I eat everything."),
        ("Ich bin Vegetarier.", "Ich esse kein Fleisch und keinen Fisch."),
        ("Soy vegana.", "No como carne ni pescado."),
        ("Sono vegetariana.", "Non mangio carne."),
        ("Mangio carne ogni giorno.", "I miei genitori sono vegetariani."),
    ],
)
async def test_a_denied_diet_or_that_of_others_ends_nothing(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert old in await current(ana)


async def test_a_new_time_alone_replaces_the_one_of_the_same_session(ana: ScopedClient) -> None:
    for text in ("choir is at 19:30", "now 20:00"):
        await ana.remember([{"role": "user", "content": text, "session": "s1"}])
    assert await current(ana) == ["now 20:00"]


async def test_what_may_replace_a_statement_does_not_take_its_place_in_other_questions(
    client: aio.Client, ana: ScopedClient
) -> None:
    trip, pool = "We leave for Lofoten on 2 July.", "I signed up for diving, it starts on 11 July."
    await tell(client, ana, trip, pool)
    assert (await recalled(ana, "When do we leave for Lofoten?"))[0] == trip


@pytest.mark.parametrize(
    ("old", "new", "outdated", "kept"),
    [
        ("I live in Vejle with my husband Palle.", "Palle and I got divorced.", "Palle", ""),
        ("I'm 41 and I work at Maersk in Esbjerg.", "I left Maersk, I'm at Vestas now.", "Maersk in", "41"),
        ("I play the harp and live in Vejle.", "I live in Ribe now.", "Vejle", "Ribe"),
    ],
)  # fmt: skip
async def test_the_facts_of_a_statement_end_with_what_changed(
    client: aio.Client, ana: ScopedClient, old: str, new: str, outdated: str, kept: str
) -> None:
    await tell(client, ana, old, new, jobs=True)
    facts = [each for each in await ana.list() if each.evidence_ids and each.valid_to is None]
    assert not [each.text for each in facts if outdated in each.text]
    assert not kept or [each.text for each in facts if kept in each.text]
    lines = (await ana.context("What is a good soup for winter?")).text.splitlines()
    assert not [line for line in lines if outdated in line and " until " not in line]


@pytest.mark.parametrize("jobs", [True, False], ids=["with facts", "without facts"])
async def test_a_part_that_did_not_change_is_still_found(
    client: aio.Client, ana: ScopedClient, jobs: bool
) -> None:
    course = "I started a pottery course on Mondays at 18:30. The instructor is Birgit."
    moved = "My pottery course moved to Wednesdays at 19:00."
    await tell(client, ana, course, moved, jobs=jobs)
    assert (await recalled(ana, "Who is my pottery instructor?"))[0] == course
    found = await ana.recall("Who is my pottery instructor?")
    assert f"until 2026-02-03 user: {course}" in found.text
    assert (await recalled(ana, "When is my pottery course?"))[0] == moved


async def test_the_place_where_one_lives_is_not_whom_one_lives_with(
    client: aio.Client, ana: ScopedClient
) -> None:
    home = "I live on Strandvej with my girlfriend Maja and our parrot Kaj."
    await tell(client, ana, home, "Maja and I broke up. She moves out on Sunday.", jobs=True)
    assert (await recalled(ana, "Where do I live?"))[0] == home
    assert home in await recalled(ana, "What is my parrot called?")


RECORDED = [
    ("Decision: invoices are stored in MariaDB.", "Decision: invoices moved to DuckDB.", "Where are invoices stored?"),
    ("The parser is written in Perl.", "We rewrote the parser in Elixir.", "What is the parser written in?"),
    ("The preview server uses port 7070.", "The preview server now uses port 7171.", "Which port does preview use?"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "question"), RECORDED)
async def test_what_an_agent_recorded_is_replaced_by_a_later_record(
    client: aio.Client, ana: ScopedClient, old: str, new: str, question: str
) -> None:
    await tell(client, ana, old, new, role="assistant")
    assert await current(ana) == [new]
    assert await recalled(ana, question) == [new]


@pytest.mark.parametrize(("old", "new", "question"), RECORDED)
async def test_an_agent_replaces_nothing_that_a_person_said_or_saved(
    client: aio.Client, ana: ScopedClient, old: str, new: str, question: str
) -> None:
    await tell(client, ana, old)
    agent = {"role": "assistant", "session": "a1"}
    await ana.remember([{**agent, "content": old}], manually_saved=True)
    (pinned,) = (await ana.remember([{**agent, "content": f"Note: {old}"}])).ids
    await ana.pin(pinned)
    await ana.remember([{**agent, "content": new, "session": "a2"}])
    assert len(await current(ana)) == 4


@pytest.mark.parametrize(
    "advice",
    [
        "You could move the invoices to DuckDB now.",
        "Sure! We moved the invoices to DuckDB.",
        "Should we move the invoices to DuckDB?",
        "Maybe the invoices should move from MariaDB to DuckDB now.",
    ],
)
async def test_advice_of_an_assistant_replaces_no_record(
    client: aio.Client, ana: ScopedClient, advice: str
) -> None:
    record = "Decision: invoices are stored in MariaDB."
    await tell(client, ana, record, advice, role="assistant")
    assert record in await current(ana)


async def test_what_an_agent_decided_is_a_decision(client: aio.Client, ana: ScopedClient) -> None:
    await tell(client, ana, "Decision: ids are ULIDs.", "The moon is bright.", role="assistant")
    categories = {each.text: each.category for each in await ana.list()}
    assert categories["Decision: ids are ULIDs."] == "decision"
    assert categories["The moon is bright."] != "decision"


@pytest.mark.parametrize(
    ("said", "commands", "outdated"),
    [
        ("I live in Skagen.", ["that's wrong, I live in Thisted, not Skagen"], "Skagen"),
        ("I live at 9 Birch Street in Hull.", ["update my address to 3 Fern Close, Hull", "yes"], "Birch"),
    ],
)  # fmt: skip
async def test_the_facts_of_a_statement_end_when_it_is_corrected(
    client: aio.Client, ana: ScopedClient, said: str, commands: list[str], outdated: str
) -> None:
    await tell(client, ana, said, jobs=True)
    for command in commands:
        reply = await client.scope("ana", session="chat").command(command)
    assert reply is not None
    assert reply.say.startswith("Corrected.")
    assert not [text for text in await current(ana) if outdated in text]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("My email is nils@harbor.example.", "My new email is nils@pier.example."),
        ("I have a goldfish named Bubbles.", "Bubbles died this morning."),
        ("Unsere Katze heißt Minka.", "Unsere Katze heißt doch Mieze, nicht Minka."),
        ("Our landlord is called Brandt.", "Our landlord is Brandis, not Brandt."),
    ],
)
async def test_a_correction_ends_what_it_corrects(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert await current(ana) == [new]


@pytest.mark.parametrize("correction", ["No, it's Förster, with ö.", "no, it's Förster with ö"])
async def test_a_spelling_that_is_corrected_at_once_ends_the_wrong_one(
    ana: ScopedClient, correction: str
) -> None:
    scope = ana
    for text in ("My surname is Forster.", correction):
        await scope.remember([{"role": "user", "content": text, "session": "s1"}])
    assert await current(ana) == [correction]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("My work email is nils@harbor.example.", "My private email is nils@pier.example."),
        ("I have a goldfish named Bubbles.", "The old president died this morning."),
        ("Unsere Katze heißt Minka.", "Unser Hund heißt Rex, nicht Max."),
        ("My surname is Forster.", "It's Monday, not Sunday."),
    ],
)
async def test_what_corrects_something_else_ends_nothing(
    client: aio.Client, ana: ScopedClient, old: str, new: str
) -> None:
    await tell(client, ana, old, new)
    assert old in await current(ana)


async def test_what_only_seemed_to_replace_a_statement_does_not_once_another_has(
    client: aio.Client, ana: ScopedClient
) -> None:
    race = "Ich trainiere für den Halbmarathon am 12. April in Dresden. Laufe dreimal pro Woche."
    diet = "Seit letzter Woche esse ich kein Fleisch mehr, Fisch aber schon."
    later = "Den in Dresden kann ich vergessen. Ich laufe jetzt am 4. Oktober in Erfurt."
    await tell(client, ana, race, diet, later)
    assert (await recalled(ana, "Wann ist mein Halbmarathon?"))[:2] == [later, race]


async def test_what_ended_a_possible_change_comes_first_in_its_place(
    client: aio.Client, ana: ScopedClient
) -> None:
    home = "Hallo, ich bin Jonas, 34, wohne in Leipzig und arbeite als Schreiner in einer kleinen Werkstatt."
    wanted = "Katrin und ich suchen eine größere Wohnung, drei Zimmer, höchstens 1200 warm."
    found = "Wir haben die Wohnung in Markkleeberg bekommen! Einzug am 1. Juli."
    lives = "Wir wohnen jetzt in Markkleeberg, endlich ist alles ausgepackt."
    await tell(client, ana, home, wanted, found, lives)
    assert (await recalled(ana, "Wo wohne ich?"))[:2] == [lives, home]


async def test_a_question_about_another_part_begins_with_the_one_that_the_verifier_prefers(
    client: aio.Client, ana: ScopedClient
) -> None:
    family = "We have three: Aoife is 9, Finn is 6 and baby Saoirse turned one in December."
    lessons = "Aoife started swimming lessons, Wednesdays at half four in the Markievicz pool."
    await tell(client, ana, family, lessons, "I hate Mondays.", "My car is a red Volvo.")
    assert (await recalled(ana, "How old is Aoife?"))[0] == family


async def test_an_outdated_turn_is_not_returned_together_with_a_fact_that_repeats_it(
    client: aio.Client, ana: ScopedClient
) -> None:
    classes = "Thermodynamics is Mondays at 9, reactor design on Wednesdays at 2 and the lab is on Friday."
    moved = "Yes please. And reactor design moved to Thursdays at 11 for the rest of the term."
    await tell(client, ana, classes, moved, jobs=True)
    assert await recalled(ana, "When is reactor design?") == [moved, classes]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Ma fille s'appelle Léa.", "Ma fille s'appelle Inès."),
        ("Il mio gatto si chiama Leo.", "Il mio gatto si chiama Tigro."),
        ("Ich habe eine Allergie gegen Nüsse.", "Ich habe eine Allergie gegen Katzen."),
        ("Ich trinke gern Tee.", "Ich trinke gern Kaffee."),
    ],
)
async def test_a_second_name_or_allergy_is_no_repetition_of_the_first(
    client: aio.Client, ana: ScopedClient, first: str, second: str
) -> None:
    await tell(client, ana, first, second, jobs=True)
    assert {first, second} <= set(await current(ana))
    assert [each.repeat_count for each in await ana.list()] == [0, 0, 0, 0]
