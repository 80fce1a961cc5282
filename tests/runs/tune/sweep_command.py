"""A search as a process of its own, so that it can be killed: PLAN and an evaluator's address."""

import importlib
import pickle
import sys
from pathlib import Path

from forecaster.errors import ForecasterError
from forecaster.runs.tune.search import run_trials
from forecaster.runs.tune.study import open_study


def main() -> int:
    """Runs the search; 2 with one line if it is refused."""
    plan = pickle.loads(Path(sys.argv[1]).read_bytes())
    module, _, name = sys.argv[2].partition(":")
    try:
        evaluate = getattr(importlib.import_module(module), name)(plan)
        run_trials(plan, open_study(plan), evaluate=evaluate, factory=sys.argv[2])
    except ForecasterError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
