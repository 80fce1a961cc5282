"""How much will all shops of a kind sell, and how sure is that?

Upper ends of bands must not be added up: not every shop has its best day at once. `total` adds up whole sample
paths instead, over weeks and over the shops of each category, and reads the band off the sums. In the shell:
`--sum W --by category`; more in [how to](../how-to.md#totals).
"""

import forecaster as fc

forecast = fc.predict("data/demo.csv", 28, future="data/demo_future.csv")
weeks = forecast.total("W", by="category")
rows = weeks.to_pandas().query("steps == 7")
print(rows[["category", "period", "forecast", "q0.1", "q0.9"]].round(-1).to_string(index=False))

whole = forecast.total("horizon", by="all").to_pandas().iloc[0]
print(f"all shops, 28 days: {whole['q0.1']:,.0f} to {whole['q0.9']:,.0f} in 80 of 100 cases")
low, high = forecast.to_pandas()[["q0.1", "q0.9"]].sum()
print(f"sums of the bands of days would be {low:,.0f} to {high:,.0f}: far too wide")
weeks.plot().savefig("03_totals.png")
