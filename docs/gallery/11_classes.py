"""Which machine is worn? Classes of series

With `label` a column is learned instead of a future: here whether a bearing is worn, seen in a vibration that
knocks once a turn, in noise. Machines that the model has not met are classified, with a probability, and
the picture shows which steps of a worn one say so. In the shell: `forecaster fit … --label state`; more in
[classes](../classes.md).
"""

import numpy as np
import pandas as pd

import forecaster as fc

random, rows = np.random.default_rng(4), []
for number in range(48):
    turn = (np.arange(48) + random.integers(12)) % 12
    knock = 1.5 * (turn == 0) if number % 2 else 0
    values = np.sin(2 * np.pi * turn / 12) + knock + 0.3 * random.standard_normal(48)
    state = "worn" if number % 2 else "sound"
    rows.append(
        pd.DataFrame({"machine": f"m{number}", "step": range(48), "vibration": values, "state": state})
    )
known, new = pd.concat(rows[:24]), pd.concat(rows[24:])
few = {"fit": {"steps": 40}}
model = fc.fit(
    known, label="state", series="machine", time="step", config=few, tracking=False, quiet=True
)
print(model.predict(new).frame[["machine", "label", "p_worn"]].head(6).round(1).to_string(index=False))
scores = model.backtest(new, tracking=False).summary
print(scores[["model", "accuracy", "log_loss"]].round(1).to_string(index=False))
model.explain(new, only="m29").plot().savefig("11_classes.png")
