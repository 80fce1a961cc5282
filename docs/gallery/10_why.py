"""Why is this the forecast?

What covariates and the calendar do is one regression with intervals; what remains is forecast by closed forms,
each with a weight that it earned at earlier cutoffs. Both are shown, effects in % here. In the shell:
`forecaster explain … --out why.html` writes a page; more in [how to](../how-to.md#explain-a-forecast) and
[effects](../effects.md).
"""

import forecaster as fc

why = fc.explain("data/demo.csv", 28, only="store_1", future="data/demo_future.csv")
print(why.effects.report)
weights = why.experts.to_pandas().groupby("expert")["weight"].mean().nlargest(5)
print((100 * weights).round().astype(int).rename("weight, %").to_string())
why.effects.plot().savefig("10_why.png")
