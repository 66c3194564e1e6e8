"""Chaos: kills commands, fills the disk and kills a cluster, again and again, and compares what is left.

__main__.py     the command line; `PYTHONPATH=tests python -m chaos --help` explains it
command.py      one running command: signals, the processes that it started, the phase that it is in
faults.c        a library that kills a command at a chosen file operation, or lets the disk be full from there on
faults.py       builds it, and reads how far it counted
snapshot.py     the contents of a store or a model as plain values, and what differs between two of them
trial.py        one disturbance and its result, and the queue of those that are still to be made
sweeps.py       `cwrnn reproduce` under kills, other signals, and a full disk
cluster.py      `cwrnn reproduce --engine dask` while workers and schedulers are killed
models.py       `cwrnn words train` under kills and a full disk: model file and feature cache
table.py        the results as Markdown and JSON
"""
