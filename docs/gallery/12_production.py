"""How do I keep a model in use current?

Three questions, each a verb that a timer can run: is the model still good (`monitor`), what does it become with
the new rows (`update`), and is that better (`export`, which moves the champion only then)? Here a shop sells a
third more from December on, when the model is in use. The script of the shell is in [how
to](../how-to.md#keep-a-model-current).
"""

import numpy as np
import pandas as pd

import forecaster as fc

random, date = np.random.default_rng(5), pd.date_range("2025-01-01", "2026-01-25")
week = np.array([90, 85, 88, 95, 120, 150, 70])[date.day_of_week]
level = np.where(date < "2025-12-01", 1, 1.33)  # the break
sales = week * level * np.exp(random.normal(0, 0.06, len(date)))
table = pd.DataFrame({"date": date, "sales": sales.round()})
before, now = table[table["date"] < "2025-12-01"], table[table["date"] < "2025-12-29"]

own = {"tracking": {"uri": "sqlite:///runs.db"}}
model = fc.fit(before, 14, experts="ets", config=own, quiet=True)
print(model.export("shop").sentence)
watch = model.monitor(now, quiet=True)
print(watch.verdict_in_use)
newer = model.update(now, quiet=True)
print(newer.export("shop", data=table).sentence)  # on the four weeks after
watch.plot().savefig("12_production.png")
