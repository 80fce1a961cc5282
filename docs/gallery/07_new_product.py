"""What will a new product sell, without any history?

What is known of it stands in the future table: planned prices and promotions, and what does not change, here
size and category. How much a shop sells is learned from these on the others, its week is the one that shops
share. The status says `cold`, and the band is as wide as the model was wrong on shops that it had not seen.
More in [how to](../how-to.md#a-new-product-without-history).
"""

import polars as pl

import forecaster as fc

plan = pl.read_csv("data/demo_future.csv").filter(pl.col("store") == "store_1")
new = pl.concat(
    plan.with_columns(store=pl.lit(name), size=pl.lit(size), category=pl.lit(kind))
    for name, size, kind in [("new in town", 300, "city"), ("new at the sea", 1200, "resort")]
)
few = {"fit": {"steps": 1}}
model = fc.fit("data/demo.csv", 28, known=["price", "promo"], config=few, tracking=False, quiet=True)
forecast = model.predict("data/demo.csv", future=new, only=["new in town", "new at the sea"])
rows = forecast.to_pandas().groupby("store")[["forecast", "q0.1", "q0.9"]].mean()
print(rows.round().to_string())
forecast.plot().savefig("07_new_product.png")
