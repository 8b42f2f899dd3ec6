from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import _compile_jinja_template

from fleetchat.chat.template import ChatTemplate
from fleetchat.errors import PromptError, ShardDamaged, SourceError

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a test<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [{"role": "user", "content": "Hello <b>"}]


def test_a_conversation_is_rendered_with_the_templates_own_system_text() -> None:
    assert ChatTemplate(CHATML).render(HELLO, add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a test<|im_end|>\n<|im_start|>user\nHello <b><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        CHATML,
        "{% for m in messages %}\n  {% if m.x %}{% continue %}{% endif %}\n{{ m.role }}\n{% endfor %}",
        "{{ messages | tojson }} {{ messages | tojson(indent=2) }} {{ undefined_name }}",
        "{{ bos_token }}{% generation %}{{ messages[0].content }}{% endgeneration %}",
        "{% set n = namespace(x=1) %}{% for m in messages %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}",
        "{% if tools %}tools{% endif %}{% if documents is none %}none{% endif %}",
    ],
)
def test_the_dialect_is_that_of_transformers(source: str) -> None:
    reference = _compile_jinja_template(source).render(
        messages=HELLO, tools=None, documents=None, add_generation_prompt=True, bos_token="<s>"
    )
    ours = ChatTemplate(source, tokens={"bos_token": "<s>"})
    assert ours.render(HELLO, add_generation_prompt=True) == reference


def test_the_date_is_that_of_the_templates_making() -> None:
    template = ChatTemplate("{{ strftime_now('%d %B %Y') }}", now=datetime(2031, 5, 4))
    assert template.render(HELLO, add_generation_prompt=False) == "04 May 2031"


def test_a_refusal_is_a_prompt_error_with_the_line() -> None:
    template = ChatTemplate("{# one #}\n\n{{ raise_exception('roles must alternate') }}")
    with pytest.raises(
        PromptError, match=r"refuses this conversation: roles must alternate \(template line 3\)"
    ):
        template.render(HELLO, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "one\ntwo {{ messages[0].content / 2 }}",
            r"the chat template fails \(template line 2\): unsupported",
        ),
        ("{{ messages.append(1) }}", r"the chat template fails \(template line 1\): .*unsafe"),
        ("{{ ''.__class__.__mro__ }}", r"the chat template fails \(template line 1\): .*unsafe"),
        ("{% include '/etc/passwd' %}", r"the chat template fails \(template line 1\)"),
    ],
)
def test_a_failing_template_names_its_line_and_cannot_reach_out(source: str, message: str) -> None:
    template = ChatTemplate(source)
    with pytest.raises(SourceError, match=message):
        template.render(HELLO, add_generation_prompt=True)


def test_a_wrong_template_names_its_line() -> None:
    with pytest.raises(SourceError, match="the chat template is wrong in line 2"):
        ChatTemplate("fine\n{% for %}")


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShardDamaged, match=r"chat_template\.jinja is not a readable chat template"):
        ChatTemplate.load(tmp_path / "chat_template.jinja")


def test_a_template_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_text("{{ bos_token }}é", encoding="utf-8")
    template = ChatTemplate.load(path, tokens={"bos_token": "<s>"})
    assert template.render(HELLO, add_generation_prompt=False) == "<s>é"
