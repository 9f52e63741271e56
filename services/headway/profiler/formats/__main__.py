"""Reads a file of profiles on standard input and writes the profiles to standard output, in a process of its own."""

import base64
import json
import sys
import time

from headway.core.codec import to_document
from headway.core.errors import HeadwayError
from headway.core.fault import Fault
from headway.profiler.formats.read import read_profiles


def main() -> None:
    request = json.load(sys.stdin)
    try:
        content = base64.b64decode(request["content"])
        for profile in read_profiles(content, hardware=request["hardware"], created_at_s=time.time()):
            print(json.dumps(to_document(profile)))
    except HeadwayError as error:
        print(json.dumps({"error": to_document(Fault.of(error))}))


if __name__ == "__main__":
    main()
