"""What comes next? A forecast without a fit

A table and a horizon are enough: nothing is trained, the answer is there in seconds. Prices and promotions of
the days to come are known, so the forecast has them. `forecast` is the median; actuals lie between `q0.1` and
`q0.9` on eight days of ten. In the shell: `forecaster predict data/demo.csv --horizon 28 --future
data/demo_future.csv`.
"""

import forecaster as fc

forecast = fc.predict("data/demo.csv", 28, future="data/demo_future.csv", only=["store_1", "store_5"])
print(forecast.report)
rows = forecast.to_pandas()[["store", "date", "forecast", "q0.1", "q0.9"]]
print(rows.head(7).round().to_string(index=False))
forecast.plot().savefig("01_first_forecast.png")
