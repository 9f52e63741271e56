"""What Prometheus, TensorBoard and a terminal see of a run."""

import json
import struct
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from rich.console import Console

from deploy.grafana.dashboards import TRAINING
from headway.cli.training_run.live import LiveRun, sparkline
from headway.cli.training_run.view import step_line
from headway.core.errors import FailedPreconditionError
from headway.core.training_job import DataSettings, TrainingJob
from headway.core.training_run import TENSORBOARD_DIRECTORY, StepReport, scrape_file
from headway.train.events import EventFile, crc32c
from headway.train.figures import RunFigures

JOB = TrainingJob(model="zoo:gpt", data=DataSettings(synthetic=True), batch=8, steps=10, metrics_port=0)
REPORT = StepReport(
    step=3, loss=2.5, grad_norm=0.5, seconds=0.1, predicted_s=0.09, tokens_s=4000, mfu=0.25, bubble=0.2,
    predicted_bubble=0.1, is_saved=True, validation_loss=2.75,
)  # fmt: skip


def _event_type() -> Any:
    """TensorBoard's messages as far as they are written, read by protobuf."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="t")
    fields = {
        "Value": [("tag", 1, field.TYPE_STRING, ""), ("simple_value", 2, field.TYPE_FLOAT, "")],
        "Summary": [("value", 1, field.TYPE_MESSAGE, ".t.Value")],
        "Event": [
            ("wall_time", 1, field.TYPE_DOUBLE, ""),
            ("step", 2, field.TYPE_INT64, ""),
            ("file_version", 3, field.TYPE_STRING, ""),
            ("summary", 5, field.TYPE_MESSAGE, ".t.Summary"),
        ],
    }
    for name, given in fields.items():
        message = file.message_type.add(name=name)
        for label, number, kind, type_name in given:
            is_repeated = name == "Summary"
            message.field.add(
                name=label,
                number=number,
                type=kind,
                type_name=type_name or None,
                label=field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Event"))


def _records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file, whose checksums are compared bit by bit with a plain computation."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        record = data[at + 12 : at + 12 + length]
        for part, where in ((data[at : at + 8], at + 8), (record, at + 12 + length)):
            (checksum,) = struct.unpack_from("<I", data, where)
            turned = (checksum - 0xA282EAD8) & 0xFFFFFFFF
            assert crc32c(part) == (turned >> 17 | turned << 15) & 0xFFFFFFFF
        yield record
        at += 16 + length


def test_checksums_are_those_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4


def test_events_are_read_by_protobuf(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    for step in (1, 300):
        file.add(step, {"loss/train": step / 4, "speed/tokens_s": 1e6})
    (path,) = tmp_path.iterdir()
    first, *events = [_event_type().FromString(record) for record in _records(path)]
    assert first.file_version == "brain.Event:2"
    assert [event.step for event in events] == [1, 300]
    assert [(each.tag, each.simple_value) for each in events[1].summary.value] == [
        ("loss/train", 75.0),
        ("speed/tokens_s", 1e6),
    ]
    assert events[0].wall_time > 1.6e9


def test_prometheus_finds_what_the_dashboard_asks_for(tmp_path: Path) -> None:
    directory = tmp_path / "train-1"
    directory.mkdir()
    figures = RunFigures(directory, JOB)
    figures.tell(REPORT)
    figures.tell_restart()
    (target,) = json.loads(scrape_file(directory).read_text())
    assert target["labels"]["process"] == "train-1"
    with urllib.request.urlopen(f"http://{target['targets'][0]}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert 'headway:train_loss{model="zoo:gpt",run="train-1"} 2.5' in text
    assert 'headway:train_tokens_total{model="zoo:gpt",run="train-1"} 400.0' in text
    names = {
        name
        for row in TRAINING.rows
        for panel in row.panels
        for query in panel.queries
        for name in query.expr.replace("(", " ").replace("{", " ").split()
        if name.startswith("headway:")
    }
    assert len(names) > 8
    assert [name for name in names if f"{name}{{" not in text] == []
    assert (directory / TENSORBOARD_DIRECTORY).is_dir()
    taken = JOB.__class__(
        model="m", data=JOB.data, batch=1, steps=1, metrics_port=int(target["targets"][0].rpartition(":")[2])
    )
    with pytest.raises(FailedPreconditionError, match="cannot be listened on"):
        RunFigures(directory, taken)
    figures.close()
    assert not scrape_file(directory).exists()


def test_a_terminal_shows_the_last_step() -> None:
    console = Console(width=100, record=True, quiet=True)
    live = LiveRun(JOB)
    with console.capture() as shown:
        console.print(live)
    live.add(REPORT)
    console = Console(width=100)
    with console.capture() as shown:
        console.print(live)
    text = shown.get()
    for said in (
        "3 of 10, saved",
        "2.75",
        "80 examples/s, 4,000 tokens/s",
        "25.0%",
        "90.0 ms predicted",
        "20.0%, 10.0%",
    ):
        assert said in text, text
    assert sparkline([1.0, 2.0, 3.0]) == "▁▅█"
    line = step_line(REPORT, batch=8, num_steps=10)
    assert "4,000 tokens/s" in line
    assert "bubble 20%, validated 2.75, saved" in line
