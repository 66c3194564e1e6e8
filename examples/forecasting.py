"""Forecast an hourly load: fit, intervals, new observations, and a backtest beside the same hour last week.

python examples/forecasting.py             runs it
python examples/forecasting.py load.csv    writes the load to a file, to try `cwrnn forecast` with
"""

import sys
import tempfile

import torch

from cwrnn.estimators import ClockworkForecaster
from cwrnn.estimators.made_series import make_load_series

load = make_load_series(days=100)  # a Series of pandas with hourly times
if len(sys.argv) > 1:
    load.round(2).to_csv(sys.argv[1])
    print(f"wrote {len(load)} hours to {sys.argv[1]}")
    sys.exit()

torch.set_num_threads(1)
known, new = load[:-48], load[-48:]

forecaster = ClockworkForecaster(horizon=24, random_state=0).fit(known)
print("Clocks from the calendar and the spectrum, in hours:")
print(forecaster.clocks_)
print(f"\ntrained in {forecaster.fit_seconds_:.1f} s: {forecaster.n_parameters_} parameters")

# the forecast begins after the last hour that the forecaster has seen
forecast, interval = forecaster.predict(), forecaster.predict_interval()
covered = ((new[:24] >= interval["lower"]) & (new[:24] <= interval["upper"])).mean()
print(f"the next day from {forecast.index[0]} on: mean absolute error {(forecast - new[:24]).abs().mean():.2f}")
print(f"the 80 % interval covers {100 * covered:.0f} % of its hours")

# new observations move the state, one step of the network for each; no weights change
forecaster.update(new[:24])
error = (forecaster.predict() - new[24:]).abs().mean()
print(f"the day after, one day later: mean absolute error {error:.2f}")

# one file has everything, and loading it executes nothing
with tempfile.TemporaryDirectory() as folder:
    forecaster.save(f"{folder}/model.safetensors")
    loaded = ClockworkForecaster.load(f"{folder}/model.safetensors")
assert loaded.predict().equals(forecaster.predict())

print("\nForecasts of the last fifth from many origins, by a forecaster that was fitted to the part before:")
print(forecaster.backtest(load))
