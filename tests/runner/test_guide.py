"""Masks of guided sequences, without a network."""

import gc
import json
from pathlib import Path

import pytest
import torch

from headway.core.request import Guide, GuideKind, SamplingParams
from headway.engine.sequence import Sequence
from headway.runner.guide import Guides
from tests.checkpoints import make_tokenizer

VOCAB_SIZE = 520  # more than the tokenizer's 467, as where a checkpoint pads its embedding
EOS_IDS = (1, 2)
TOKENIZER = make_tokenizer()


@pytest.fixture
def guides(tmp_path: Path) -> Guides:
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    return Guides(tmp_path / "tokenizer.json", vocab_size=VOCAB_SIZE, eos_token_ids=EOS_IDS)


def sequence(kind: GuideKind, text: str, *, output: str = "") -> Sequence:
    token_ids = [7, 7, *encode(output)]
    return Sequence("r", token_ids, 2, SamplingParams(guide=Guide(kind, text)), arrival_s=0.0)


def encode(text: str) -> list[int]:
    """Byte by byte, since a mask tells of every way to write."""
    return [token_id for char in text for token_id in TOKENIZER.encode(char).ids]


def allowed(mask: torch.Tensor) -> set[int]:
    return set(mask.nonzero()[:, 0].tolist())


def test_only_what_leads_on_is_allowed_and_the_end_where_a_text_is_complete(guides: Guides) -> None:
    rows = [sequence(GuideKind.CHOICE, '["ab", "abc"]', output=output) for output in ("", "a", "ab", "abc")]
    masks = guides.mask([(row, ()) for row in rows])
    assert masks.shape == (4, VOCAB_SIZE)
    spellings = [set(encode("a")), set(encode("b")), {*encode("c"), *EOS_IDS}, set(EOS_IDS)]
    assert [allowed(mask) for mask in masks] == spellings


def test_the_mask_follows_the_output_as_it_grows(guides: Guides) -> None:
    row = sequence(GuideKind.REGEX, "x{3}")
    for _ in range(3):
        assert allowed(guides.mask([(row, ())])[0]) >= set(encode("x"))
        row.token_ids += encode("x")
    assert allowed(guides.mask([(row, ())])[0]) == set(EOS_IDS)
    assert guides.fault(row) == ""


def test_drafts_are_tried_and_taken_back(guides: Guides) -> None:
    row = sequence(GuideKind.REGEX, "abcd")
    drafts = tuple(encode("abc"))
    masks = guides.mask([(row, drafts[:count]) for count in range(4)])
    assert [allowed(mask) for mask in masks] == [set(encode(char)) for char in "abcd"]
    outside, ended, again = guides.mask([(row, tuple(encode("z"))), (row, tuple(encode("abcd"))), (row, ())])
    assert outside.all(), "a draft that is not accepted: nothing may depend on what follows it"
    assert allowed(ended) == set(EOS_IDS)
    assert allowed(again) == set(encode("a"))


def test_an_output_outside_the_language_is_a_fault_of_its_sequence_alone(guides: Guides) -> None:
    bad, good = sequence(GuideKind.REGEX, "a+", output="b"), sequence(GuideKind.REGEX, "a+")
    masks = guides.mask([(bad, ()), (good, ())])
    assert "satisfy the grammar" in guides.fault(bad)
    assert guides.fault(good) == ""
    assert set(encode("a")) <= allowed(masks[1])


def test_a_grammar_that_names_an_unknown_token_is_a_fault_too(guides: Guides) -> None:
    row = sequence(GuideKind.GRAMMAR, "start: <|nope|>")
    guides.mask([(row, ())])
    assert guides.fault(row) != ""


def test_white_space_in_json_is_bounded(guides: Guides) -> None:
    schema = json.dumps({"type": "object"})
    some, much = (sequence(GuideKind.JSON_SCHEMA, schema, output="{" + " " * count) for count in (19, 20))
    masks = guides.mask([(some, ()), (much, ())])
    assert [bool(mask[encode(" ")[0]]) for mask in masks] == [True, False]


def test_a_sequence_is_forgotten_with_its_end(guides: Guides) -> None:
    row = sequence(GuideKind.REGEX, "a")
    guides.mask([(row, ())])
    assert len(guides._walks) == 1
    del row
    gc.collect()
    assert len(guides._walks) == 0


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (GuideKind.REGEX, "(a{1000}){1000}"),
        (GuideKind.CHOICE, json.dumps([f"choice {i}" for i in range(30_000)])),
        (GuideKind.GRAMMAR, "start: a\na: " + " ".join(['"x"?'] * 5000)),
        (GuideKind.JSON_SCHEMA, '{"$ref": "#"}'),
        (GuideKind.GRAMMAR, "start: <|nope|>"),
    ],
)
def test_a_guide_that_is_too_much_or_of_no_text_is_found_when_it_is_prepared(
    guides: Guides, kind: GuideKind, text: str
) -> None:
    assert guides.prepare(Guide(kind, text)) != ""


def test_thousands_of_choices_are_not_too_much(guides: Guides) -> None:
    row = sequence(GuideKind.CHOICE, json.dumps([f"{i}" for i in range(3000)]), output="299")
    assert guides.prepare(row.sampling.guide or Guide(GuideKind.REGEX)) == ""
    assert set(encode("9")) <= allowed(guides.mask([(row, ())])[0])


def test_a_guide_is_compiled_once_for_all_its_sequences(guides: Guides, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = sequence(GuideKind.REGEX, "a{2}", output="a"), sequence(GuideKind.REGEX, "a{2}")
    assert guides.prepare(Guide(GuideKind.REGEX, "a{2}")) == ""
    monkeypatch.setattr("headway.runner.guide.grammar_of", None)
    mask, other = guides.mask([(one, ()), (two, ())])
    assert set(encode("a")) <= allowed(mask) & allowed(other)
    del one.token_ids[2:]
    assert guides.fault(one) == guides.fault(two) == ""


def test_nothing_is_read_before_it_is_needed(tmp_path: Path) -> None:
    guides = Guides(tmp_path / "not there", vocab_size=VOCAB_SIZE, eos_token_ids=EOS_IDS)
    with pytest.raises(FileNotFoundError):
        guides.mask([(sequence(GuideKind.REGEX, "a"), ())])
