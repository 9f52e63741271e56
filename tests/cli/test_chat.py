from tests.cli.conftest import Run
from tests.client.scripted import WORDS, ScriptedService

TEXT = "".join(WORDS)


def test_lines_that_are_piped_in_are_answered_one_by_one(headway: Run, endpoint: str, service: ScriptedService) -> None:
    result = headway("chat", "--system", "Be brief.", "--endpoint", endpoint, stdin="Hello\n\nAnd then?\n")
    assert (result.returncode, result.stdout) == (0, f"{TEXT}\n{TEXT}\n")
    turns = [(message.role, message.content) for message in service.requests[1].chat.messages]
    assert turns == [
        ("system", "Be brief."),
        ("user", "Hello"),
        ("assistant", TEXT),
        ("user", "And then?"),
    ]


def test_clear_forgets_and_exit_leaves(headway: Run, endpoint: str, service: ScriptedService) -> None:
    headway("chat", "--endpoint", endpoint, stdin="Hello\n/clear\nAgain\n/exit\nNever\n")
    assert [len(request.chat.messages) for request in service.requests] == [1, 1]


def test_a_refusal_ends_a_piped_conversation(headway: Run, endpoint: str) -> None:
    result = headway("chat", "--model", "huge", "--endpoint", endpoint, stdin="Hello\nAgain\n")
    assert result.returncode == 1
    assert result.stderr.startswith("error: There is no model huge.")
