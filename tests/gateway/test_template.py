"""Chat templates, as checkpoints carry them."""

from datetime import datetime
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.gateway.text.template import ChatTemplate
from tests.checkpoints import BOS, EOS, make_tokenizer, write_tokenizer

USER = {"role": "user", "content": "Hi <b>"}


def test_special_tokens_and_the_generation_prompt_are_there() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}",
        bos_token="<s>",
        eos_token="</s>",
    )
    assert template.render([USER]) == "<s>[user]Hi <b></s>[assistant]"


def test_blocks_are_trimmed_as_in_transformers() -> None:
    source = "{% for m in messages %}\n    {% if true %}\nx\n    {% endif %}\n{% endfor %}\n"
    assert ChatTemplate(source).render([USER]) == "x\n"


def test_what_templates_of_the_hub_use_is_there() -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}"
        "{{ strftime_now('%Y') }}{% generation %}g{% endgeneration %}{% if tools is none %}!{% endif %}"
    )
    rendered = ChatTemplate(source, now=lambda: datetime(1999, 1, 2)).render([USER, USER])  # noqa: DTZ001
    assert rendered == '{"role": "user", "content": "Hi <b>"}1999g!'


def test_options_reach_the_template() -> None:
    template = ChatTemplate("{% if enable_thinking is false %}quick{% else %}deep{% endif %}")
    assert template.render([USER], options={"enable_thinking": False}) == "quick"
    assert template.render([USER]) == "deep"


TURNS = (
    "{{ bos_token }}{% for d in documents or [] %}<{{ d.title }}: {{ d.text }}>{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content | trim if trims else m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    directory: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(directory, make_tokenizer())
    (directory / "chat_template.jinja").unlink()
    return AutoTokenizer.from_pretrained(directory)


@pytest.mark.parametrize("trims", [False, True])
@pytest.mark.parametrize("content", ["The answer", "The answer ", " The answer\n", "Hi", ""])
def test_a_continued_message_reads_as_in_transformers(
    reference: PreTrainedTokenizerFast, content: str, trims: bool
) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]
    template = ChatTemplate(TURNS, bos_token=BOS, eos_token=EOS)
    ours = template.render(
        messages, options={"add_generation_prompt": False, "trims": trims}, continue_final_message=True
    )
    theirs = reference.apply_chat_template(
        messages, chat_template=TURNS, tokenize=False, continue_final_message=True, trims=trims
    )
    assert ours == theirs
    assert messages[-1]["content"] == content


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("documents", [None, [{"title": "A", "text": "b"}, {"title": "C", "text": "d"}]])
def test_documents_and_generation_prompt_are_as_in_transformers(
    reference: PreTrainedTokenizerFast, adds: bool, documents: list[dict[str, str]] | None
) -> None:
    ours = ChatTemplate(TURNS, bos_token=BOS, eos_token=EOS).render(
        [USER], options={"add_generation_prompt": adds} | ({} if documents is None else {"documents": documents})
    )
    theirs = reference.apply_chat_template(
        [USER], chat_template=TURNS, tokenize=False, add_generation_prompt=adds, documents=documents
    )
    assert ours == theirs


def test_a_message_that_the_template_changes_cannot_be_continued() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content.split('|')[0] }}{{ m.content[-27:] }}{% endfor %}")
    for content in ("one|two", "x" * 40 + "|"):
        with pytest.raises(InvalidArgumentError, match="changes the last message") as caught:
            template.render([{"role": "assistant", "content": content}], continue_final_message=True)
        assert caught.value.field == "continue_final_message"


def test_a_template_says_which_variables_it_reads() -> None:
    template = ChatTemplate("{% set x = 1 %}{{ x }}{{ messages }}{% if reasoning_effort %}!{% endif %}")
    assert "reasoning_effort" in template.variables
    assert not {"documents", "x"} & template.variables


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('Roles must alternate') }}", "Roles must alternate"),
        ("{{ messages[5].content.x }}", "refuses these messages"),
        ("{{ messages.append(1) }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages"),
        ("{{ 1 + 'a' }}", "refuses these messages"),
    ],
)
def test_a_refusal_names_the_messages(source: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        ChatTemplate(source).render([USER])
    assert caught.value.field == "messages"


def test_a_template_that_is_no_jinja_is_the_checkpoints_fault() -> None:
    with pytest.raises(FailedPreconditionError, match="not valid jinja2"):
        ChatTemplate("{% for %}")
