"""How do forecasts of shops, kinds and the company add up?

Each sum is a series of its own and forecast as one; then all forecasts are changed as little as their past
errors allow, until shops add up to their kind and kinds to the whole. In the shell: `--hierarchy
category/store`; more in [how to](../how-to.md#totals).
"""

import forecaster as fc

forecast = fc.predict("data/demo.csv", 28, future="data/demo_future.csv")
nodes = forecast.hierarchy("category/store")
rows = nodes.to_pandas()
rows = rows[rows["date"] == rows["date"].min()]
shown = rows[["node_level", "category", "store", "forecast"]].fillna("")
print(shown.round(1).to_string(index=False))
print(rows.groupby("node_level")["forecast"].sum().round(1).to_string())
nodes.plot().savefig("04_hierarchy.png")
