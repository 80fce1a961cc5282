"""How many spare parts should lie in stock?

On most days no part is ordered, and a median of 0 helps nobody. Counts with zeros have one distribution here;
its sample paths are added up over the two weeks until the next delivery, and the stock that suffices in 95 of
100 cases is read off the sums. The last two columns are what the rates say that the demands were drawn with: a
year of zeros tells little of a motor that is ordered once in three weeks.
"""

import numpy as np
import pandas as pd

import forecaster as fc

random, days = np.random.default_rng(2), pd.date_range("2025-01-01", periods=365)
rates = {"seal": 0.6, "bearing": 0.25, "motor": 0.05}  # orders a day, of one to three parts each


def demand(rate, size):
    return random.poisson(rate, size) * random.integers(1, 4, size)


parts = [
    pd.DataFrame({"part": n, "date": days, "demand": demand(rate, 365)}) for n, rate in rates.items()
]
forecast = fc.predict(pd.concat(parts), 14, lower=0, integer=True, quantiles=[0.95])
total = forecast.total("horizon", samples=2000)
stock = total.frame.set_index("part")[["mean", "q0.95"]].round()
stock["true mean"] = {name: 28 * rate for name, rate in rates.items()}
many = {name: demand(rate, (9999, 14)).sum(1) for name, rate in rates.items()}
stock["true q0.95"] = {name: np.quantile(sums, 0.95) for name, sums in many.items()}
print(stock.round().astype(int).to_string())
total.plot().savefig("08_intermittent.png")
