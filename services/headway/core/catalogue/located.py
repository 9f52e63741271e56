"""YAML whose every value knows where it was written, so that a fault can be told with file, line and field."""

from dataclasses import dataclass
from typing import TypeAlias

import yaml

from headway.core.errors import InvalidArgumentError

_MAX_DEPTH = 50
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast one where PyYAML has it

Tree: TypeAlias = "str | list[Located] | dict[str, Located]"


@dataclass(frozen=True, slots=True)
class Located:
    """A scalar as it was written, a list, or a mapping.

    Attributes:
        path: of fields, e.g. 'devices.H100.peak.float16'.
        file, line: where it begins.
    """

    value: Tree
    path: str
    file: str
    line: int

    def fault(self, problem: str, *, hint: str = "") -> InvalidArgumentError:
        """`problem` goes on from the field: 'should be ...'."""
        return InvalidArgumentError(
            f"{self.file}, line {self.line}: {self.path or 'the file'} {problem}.", hint=hint, field=self.path
        )

    @property
    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.fault("should be a single value")
        return self.value

    @property
    def items(self) -> "list[Located]":
        if not isinstance(self.value, list):
            raise self.fault("should be a list", hint="Write it as [first, second].")
        return self.value

    @property
    def fields(self) -> "dict[str, Located]":
        if not isinstance(self.value, dict):
            raise self.fault("should hold 'name: value' lines")
        return self.value


def read_located(text: str, *, file: str) -> Located:
    """InvalidArgumentError where the text is no YAML or a name stands in it twice."""
    try:
        check_depth(text)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidArgumentError(
            f"{file}, line {line}: {error.problem or 'no valid YAML'}.", hint="Correct the line.", field=file
        ) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidArgumentError(f"{file} is no valid YAML: {error}.", hint="Correct it.", field=file) from error
    return Located({}, "", file, 1) if node is None else _locate(node, "", file, ())


def check_depth(text: str | bytes) -> None:
    """Raises YAMLError where lists and objects are so deep that PyYAML's loader in C would end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise yaml.YAMLError(f"lists and objects are more than {_MAX_DEPTH} deep")


def _locate(node: yaml.Node, path: str, file: str, parents: tuple[yaml.Node, ...]) -> Located:
    line = node.start_mark.line + 1
    if node in parents:
        raise Located("", path, file, line).fault("refers to itself", hint="Write it out.")
    if len(parents) > _MAX_DEPTH:
        raise InvalidArgumentError(
            f"{file}, line {line}: lists and objects are more than {_MAX_DEPTH} deep.", hint="Correct it.", field=file
        )
    parents = (*parents, node)
    if isinstance(node, yaml.SequenceNode):
        items = [_locate(item, f"{path}[{i}]", file, parents) for i, item in enumerate(node.value)]
        return Located(items, path, file, line)
    if not isinstance(node, yaml.MappingNode):
        return Located(str(node.value), path, file, line)
    fields: dict[str, Located] = {}
    for key, item in node.value:
        name = str(key.value)
        if name in fields:
            raise Located("", path, file, key.start_mark.line + 1).fault(f"has '{name}' twice", hint="Keep one.")
        fields[name] = _locate(item, f"{path}.{name}" if path else name, file, parents)
    return Located(fields, path, file, line)
