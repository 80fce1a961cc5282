"""Which values of a history are not normal?

Each value is compared with the band that was forecast one step before it; what lies outside a band of 99 % is
an anomaly, and neighbours are one event. Here a meter shows a night that is too high and a morning without
power, both planted. In the shell: `forecaster detect`; more in [how to](../how-to.md#detect-anomalies).
"""

import numpy as np
import pandas as pd

import forecaster as fc

random, hour = np.random.default_rng(3), pd.date_range("2026-01-01", periods=28 * 24, freq="h")
day = 30 - 12 * np.cos(2 * np.pi * (hour.hour - 3) / 24)
load = day.to_numpy() * np.where(hour.day_of_week < 5, 1, 0.75) + random.normal(0, 1.5, len(hour))
load[400:404] += 12  # planted: 17 January, 16:00 to 19:00
load[536:539] = 2  # planted: 23 January, 8:00 to 10:00
meter = pd.DataFrame({"time": hour, "load": load.round(1)})

anomalies = fc.detect(meter)
print(*anomalies.events[:4], sep="\n")
anomalies.plot().savefig("09_anomalies.png")
