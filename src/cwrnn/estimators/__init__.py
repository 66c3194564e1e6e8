"""Estimators with scikit-learn's contract: networks with clocks that train themselves.

They need scikit-learn and pandas, which `pip install 'cwrnn[estimators]'` installs.
"""

from ..extras import require

for _package in ("sklearn", "pandas"):
    require(_package, extra="estimators", purpose="cwrnn.estimators")
