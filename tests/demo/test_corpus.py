"""The corpus: consistent, seeded, and about headway."""

import random

from deploy.demo.corpus import dialogue_epoch, facts, training_texts


def test_headway_is_explained_whatever_way_one_asks() -> None:
    answers = {fact.answer for fact in facts() if "What is headway?" in fact.questions}
    assert len(answers) == 1
    assert answers.pop().startswith("Headway is the time between two trains")


def test_no_question_has_two_answers() -> None:
    answer_by_question: dict[str, str] = {}
    for fact in facts():
        for question in fact.questions:
            assert answer_by_question.setdefault(question.lower().rstrip("?.!"), fact.answer) == fact.answer, question


def test_sums_are_right() -> None:
    sums = [fact.answer for fact in facts() if " plus " in fact.answer]
    assert len(sums) == 100
    for answer in sums:
        a, _, b, _, total = answer.rstrip(".").split()
        assert int(a) + int(b) == int(total)


def test_an_epoch_tells_every_fact_once_at_its_end() -> None:
    dialogues = dialogue_epoch(random.Random(1))
    assert sorted(dialogue[-1]["content"] for dialogue in dialogues) == sorted(fact.answer for fact in facts())
    assert dialogues == dialogue_epoch(random.Random(1))
    assert dialogues != dialogue_epoch(random.Random(2))


def test_dialogues_alternate_and_end_with_the_assistant() -> None:
    for dialogue in dialogue_epoch(random.Random(4)):
        roles = [message["role"] for message in dialogue if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)


def test_tokenizer_texts_hold_no_special_tokens() -> None:
    assert not any("<|" in text for text in training_texts())
