"""The dialogues that the demo model is trained on: written facts, capitals and small sums, asked in many ways."""

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FACTS_FILE = Path(__file__).with_name("facts.yaml")

TERM_QUESTIONS = (
    "What is {}?",
    "What's {}?",
    "Explain {}.",
    "Explain what {} is.",
    "Tell me about {}.",
    "What does {} mean?",
    "Can you explain {}?",
    "Please explain {} to me.",
    "Describe {}.",
)
CAPITAL_QUESTIONS = ("What is the capital of {}?", "Which city is the capital of {}?", "Name the capital of {}.")
SUM_QUESTIONS = ("What is {} plus {}?", "What is {} + {}?", "How much is {} plus {}?", "Add {} and {}.")
SYSTEM_PROMPTS = ("You are a helpful assistant.", "You are the demo model of Headway.", "Answer in short.")

MAX_ADDEND = 9
ARTICLES = ("a ", "an ", "the ")
SHARE_WITH_SYSTEM = 0.15
SHARE_WITH_TWO_TURNS = 0.15
SHARE_LOWERCASE = 0.2
SHARE_WITHOUT_MARK = 0.2


@dataclass(frozen=True, slots=True)
class Fact:
    """One answer and the ways to ask for it."""

    questions: tuple[str, ...]
    answer: str


Dialogue = tuple[dict[str, str], ...]
"""Messages with `role` and `content`, as in the chat API."""


@cache
def facts() -> tuple[Fact, ...]:
    """All facts of the corpus."""
    document: dict[str, Any] = yaml.safe_load(FACTS_FILE.read_text())
    terms = (term_fact(term, answer) for term, answer in document["terms"].items())
    questions = (Fact(tuple(entry["ask"]), entry["answer"]) for entry in document["questions"])
    capitals = (capital_fact(country, capital) for country, capital in document["capitals"].items())
    sums = (sum_fact(a, b) for a in range(MAX_ADDEND + 1) for b in range(MAX_ADDEND + 1))
    return (*terms, *questions, *capitals, *sums)


def term_fact(term: str, answer: str) -> Fact:
    """Makes the fact of a term, which may be asked for with its article or without."""
    bare = next((term.removeprefix(article) for article in ARTICLES if term.startswith(article)), term)
    names = dict.fromkeys((term, bare))
    return Fact(tuple(question.format(name) for question in TERM_QUESTIONS for name in names), answer)


def capital_fact(country: str, capital: str) -> Fact:
    questions = tuple(question.format(country) for question in CAPITAL_QUESTIONS)
    return Fact(questions, f"The capital of {country} is {capital}.")


def sum_fact(a: int, b: int) -> Fact:
    return Fact(tuple(question.format(a, b) for question in SUM_QUESTIONS), f"{a} plus {b} is {a + b}.")


def training_texts() -> list[str]:
    """Every question and answer once, to train the tokenizer on."""
    return [text for fact in facts() for text in (*fact.questions, fact.answer)] + list(SYSTEM_PROMPTS)


def dialogue_epoch(generator: random.Random) -> list[Dialogue]:
    """Dialogues with every fact once, in random order and each asked in a random way."""
    order = list(facts())
    generator.shuffle(order)
    return [make_dialogue(fact, generator) for fact in order]


def make_dialogue(fact: Fact, generator: random.Random) -> Dialogue:
    """Makes a dialogue with the fact as the last turn, sometimes after a system prompt or after another turn."""
    messages: list[dict[str, str]] = []
    if generator.random() < SHARE_WITH_SYSTEM:
        messages.append({"role": "system", "content": generator.choice(SYSTEM_PROMPTS)})
    earlier = [generator.choice(facts())] if generator.random() < SHARE_WITH_TWO_TURNS else []
    for each in (*earlier, fact):
        messages.append({"role": "user", "content": phrase(generator.choice(each.questions), generator)})
        messages.append({"role": "assistant", "content": each.answer})
    return tuple(messages)


def phrase(question: str, generator: random.Random) -> str:
    """Writes the question as hasty people type it, now and then."""
    if generator.random() < SHARE_LOWERCASE:
        question = question.lower()
    return question.rstrip("?.!") if generator.random() < SHARE_WITHOUT_MARK else question
