"""The process `python -m headway.backends.contestant`: it reads an entry on standard input, compiles it, and then runs
it once for every further line, with an answer a line on standard output. It ends with its input.
"""

import json
import os
import sys
from typing import TextIO

import torch

from headway.backends.contestant.course import Contestant, Course
from headway.backends.contestant.entry import Answer, Entry
from headway.backends.device import fault_of
from headway.backends.libraries import Libraries
from headway.core.codec import from_document, to_document
from headway.observe.parentage import end_with_parent


def main() -> None:
    end_with_parent()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an operator prints is no answer
        entry = from_document(Entry, json.loads(sys.stdin.readline()))
        torch.set_num_threads(entry.num_threads)
        try:
            course = Course(entry.program, torch.device(entry.device))
            contestant = Contestant(entry.program, course, libraries=Libraries(), num_threads=entry.num_threads)
        except Exception as error:  # noqa: BLE001 - whatever a backend raises
            _say(answers, Answer(fault=fault_of(error)))
            return
        _say(answers, Answer(deviation=contestant.deviation))
        for _ in sys.stdin:
            _say(answers, Answer(seconds=contestant.run_s()))


def _say(answers: TextIO, answer: Answer) -> None:
    answers.write(json.dumps(to_document(answer)) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
