"""What would a lower price sell?

The same days are forecast twice, with the prices that are planned and with others; both draw the same sample
paths, so that their difference has a band of its own and no change is exactly 0. It is the effect of past price
changes: a price that was never asked is a guess. In the shell: `--what-if "price*0.9"`; more in [how
to](../how-to.md#what-if).
"""

import forecaster as fc

table, plan = "data/demo.csv", "data/demo_future.csv"
cheaper = fc.what_if(table, 28, plan, ["price*0.9"], only=["store_1"])
print(cheaper.report)
total = cheaper.total("horizon").to_pandas()
print(total[["scenario", "forecast", "q0.1", "q0.9"]].round(-1).to_string(index=False))
cheaper.plot().savefig("05_what_if.png")
