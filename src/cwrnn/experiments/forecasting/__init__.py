"""Forecasting tables: functions that fit a forecaster to a file, use it and compare it with others.

They need pandas and scikit-learn, which `pip install 'cwrnn[forecast]'` installs.
"""

from ...extras import require

for _package in ("pandas", "sklearn"):
    require(_package, extra="forecast", purpose="forecasting")
