"""A search as a process of its own, so that it can be killed: PLAN.json and an objective's address."""

import sys
from pathlib import Path

from forecaster.errors import ForecasterError
from forecaster.runs.tune.plan import read_plan
from forecaster.runs.tune.study import open_study
from forecaster.runs.tune.worker import Session
from forecaster.runs.tune.workers import run_workers


def main() -> int:
    """Runs the search; 2 with one line where it is refused."""
    plan = read_plan(Path(sys.argv[1]))
    patience = float(sys.argv[3]) if len(sys.argv) > 3 else 60.0
    try:
        study = open_study(plan, patience)
        session = Session.begin(study, plan, patience)
        run_workers(plan, study, session, objective=sys.argv[2])
    except ForecasterError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
