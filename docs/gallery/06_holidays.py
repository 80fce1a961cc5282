"""How do I add holidays, and Easter, which moves?

Name the country: each public holiday becomes a covariate known in advance, with the days around it, at its own
date each year. Here a bakery sells a quarter on holidays, and half as much again on the Saturday before Easter.
The forecast has Easter of 2026 where it will be. In the shell: `--holidays DE`; it needs `pip install
".[holidays]"`. More in [effects](../effects.md).
"""

import holidays
import numpy as np
import pandas as pd
from dateutil.easter import easter

import forecaster as fc

random, date = np.random.default_rng(1), pd.date_range("2022-01-01", "2026-03-20")
week = np.array([90, 85, 88, 95, 120, 150, 70])[date.day_of_week]
closed = [day in holidays.Germany(years=day.year) for day in date]
saturdays = [(easter(day.year) - day.date()).days == 1 for day in date]
sales = week * np.where(closed, 0.25, 1) * np.where(saturdays, 1.5, 1)
sales = sales * np.exp(random.normal(0, 0.06, len(date)))
bakery = pd.DataFrame({"date": date, "sales": sales.round()})

forecast = fc.predict(bakery, 28, holidays="DE")
rows = forecast.frame.set_index("date").loc["2026-04-01":"2026-04-08", ["forecast", "q0.1", "q0.9"]]
print(rows.round().astype(int).to_string())
print(fc.explain(bakery, 28, holidays="DE").effects.report)
forecast.plot().savefig("06_holidays.png")
