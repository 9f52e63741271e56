"""Chat templates, as checkpoints carry them."""

from datetime import datetime

import pytest

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.gateway.text.template import ChatTemplate

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
