"""Documents of the tiny world: they state train questions with their answers."""

from random import Random

import pytest

from tinyworld import tasks
from tinyworld.documents import FAMILIES, TinyCorpus, document


def draw_documents(count: int = 400):
    rng = Random(1)
    return [document(rng) for _ in range(count)]


def test_a_document_states_train_questions_and_their_answers() -> None:
    for text, stated in draw_documents():
        statements = [f"{task.question}: {task.answer}" for task in stated]
        assert text.split("; ") == statements
        assert 4 <= len(stated) <= 6
        assert {task.split for task in stated} == {"train"}


def test_documents_state_open_facts_and_all_families_of_both_halves() -> None:
    families = set()
    fact_levels = set()
    for _, stated in draw_documents():
        for task in stated:
            families.add(task.family)
            if task.family == "fact":
                fact_levels.add(task.level)
    assert 3 in fact_levels, "nothing else states these facts"
    assert families == {*FAMILIES["math"], *FAMILIES["general"]}


@pytest.fixture(params=FAMILIES)
def corpus(request) -> TinyCorpus:
    return TinyCorpus(request.param, 400)


def all_texts(corpus: TinyCorpus) -> list[str]:
    return [corpus.document(number) for number in range(len(corpus))]


def test_a_document_depends_on_kind_and_number_only(corpus: TinyCorpus) -> None:
    larger = TinyCorpus(corpus.kind, 9999)
    for number, text in enumerate(all_texts(corpus)):
        assert larger.document(number) == text


def test_most_documents_of_a_corpus_differ(corpus: TinyCorpus) -> None:
    distinct_texts = set(all_texts(corpus))
    assert len(corpus) == 400
    assert len(distinct_texts) > 300


def test_a_corpus_states_train_questions_of_one_half(corpus: TinyCorpus) -> None:
    families = set()
    for text in all_texts(corpus):
        for statement in text.split("; "):
            question, _, answer = statement.rpartition(": ")
            assert tasks.is_correct(question, answer)
            assert tasks.split(question) == "train"
            task = tasks.read(question)
            families.add(task.family)
    assert families == set(FAMILIES[corpus.kind])


def test_a_sample_is_one_of_the_documents(corpus: TinyCorpus) -> None:
    rng = Random(2)
    samples = {corpus.sample(rng) for _ in range(50)}
    assert samples <= set(all_texts(corpus))
