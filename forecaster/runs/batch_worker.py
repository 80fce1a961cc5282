"""One of several processes that make parts: `python -m forecaster.runs.batch_worker`.

What comes in, as one line of JSON on standard input: a plan, numbers of blocks, a device. What goes
out: a line [number, record] per part. When standard input ends, whoever started this is gone, and it
ends too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import asdict

from forecaster.errors import ForecasterError


def main() -> int:
    """Makes the parts that standard input asks for; returns the exit code."""
    # Ctrl-C reaches the whole group; the one that started this ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_watch, daemon=True).start()
    said, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no record
    from forecaster.forecast.parts import PartitionJob, write_part

    plan = PartitionJob.from_json(order["plan"])
    try:
        predictor, panel = plan.opened(order["device"], order["lanes"])
        for number in order["blocks"]:
            record = write_part(predictor, panel, number, plan)
            print(json.dumps([number, asdict(record)]), file=said, flush=True)
    except ForecasterError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _watch() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
