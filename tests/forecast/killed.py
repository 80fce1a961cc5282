"""A process that starts batch forecasts, kills them, and says as JSON what it found.

Everything heavy is imported once; every forecast is a fork. Nothing may start a thread before.

    python killed.py MODEL STORE OUT SEED
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import forecaster as fc
import forecaster.forecast.parts as parts
import forecaster.runs.batch_predict  # loads all that a forecast needs

MODEL, STORE, OUT = fc.load(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
FOLDER = OUT.with_name(f"{OUT.name}.parts")
KILLS = 8


def die(*ignored, **named):
    """What a kill at this very place is."""
    os.kill(os.getpid(), signal.SIGKILL)


def started(prepare=lambda: None, **options):
    """The pid of a forecast of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            MODEL.predict_to(OUT, STORE, **options)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return pid


def ended(pid):
    """The exit code of a process that ends by itself; negative = the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def finished():
    """The bytes of the file once a forecast has come to its end; all else is gone."""
    assert ended(started()) == 0
    content = OUT.read_bytes()
    assert os.listdir(OUT.parent) == [OUT.name], os.listdir(OUT.parent)
    OUT.unlink()
    return content


def killed_at(delay):
    """Whether a forecast was killed after a time; False = it was done before."""
    pid, begun = started(), time.monotonic()
    while time.monotonic() - begun < delay:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            assert status == 0
            return False
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    return ended(pid) < 0


def at_random(whole, seconds, rng):
    """How many kills there were, how many results between them, and at how many parts."""
    kills, results, seen = 0, 0, []
    while kills < KILLS:
        if killed_at(rng.uniform(0, seconds)):
            kills += 1
            seen.append(len(list(FOLDER.glob("part-*.json"))))
        if OUT.exists():
            assert OUT.read_bytes() == whole
        if OUT.exists() and not FOLDER.exists():
            OUT.unlink()
            results += 1
    assert finished() == whole
    return {"kills": kills, "results": results, "parts": seen}


def half_merged():
    """Killed with half of the merged file written."""
    merge = parts.merge_parts

    def half(files, out, suffix, as_text):
        merge(files, out, suffix, as_text)
        os.truncate(out, out.stat().st_size // 2)
        die()

    parts.merge_parts = half


def merged():
    """Killed when the file is there, and the parts are too."""
    parts.Partitions.remove = die


def half_removed():
    """Killed with some of the parts removed."""
    unlink = Path.unlink

    def some(path, **named):
        if path.name == "part-000001.parquet":
            die()
        unlink(path, **named)

    Path.unlink = some


def half_recorded():
    """Killed between a part and its record."""
    write = parts._write_json
    parts._write_json = lambda path, content: die() if "part" in path.name else write(path, content)


def main():
    """Prints what was found."""
    begun = time.monotonic()
    whole = finished()
    found = at_random(whole, time.monotonic() - begun, random.Random(int(sys.argv[4])))
    for prepare in (half_merged, merged, half_removed, half_recorded):
        assert ended(started(prepare)) == -signal.SIGKILL
        found[prepare.__name__] = [OUT.exists(), finished() == whole]
    for of in (2, 3):
        pids = [started(shard=(k, of)) for k in range(1, of + 1)]
        assert [ended(pid) for pid in pids] == [0] * of
        assert not OUT.exists()
        found[f"shards {of}"] = finished() == whole
    (OUT.parent.parent / "whole.parquet").write_bytes(whole)
    print(json.dumps(found))


main()
