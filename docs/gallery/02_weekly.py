"""How do I get weekly forecasts from daily rows?

Each week is added up while the table is read (`resample`, `agg`), and the weeks are forecast: their bands are
narrower than sums of the bands of days would be. `W-SUN` is Monday to Sunday, stamped with its Sunday; `MS`
would be months. In the shell: `--resample W-SUN --agg sum`; more in [how to](../how-to.md#weekly-from-daily).
"""

import forecaster as fc

table, plan = "data/demo.csv", "data/demo_future.csv"
weekly = fc.predict(table, 4, future=plan, resample="W-SUN", agg="sum", only=["store_1", "store_5"])
rows = weekly.to_pandas()[["store", "date", "forecast", "q0.1", "q0.9"]]
print(rows.round().to_string(index=False))
weekly.plot().savefig("02_weekly.png")
