"""Spectrum: how fast each module changes, compared with its clock.

A module of period P changes at most every P steps, so it carries information at frequencies up to 1 / (2 P). Above that
limit it has only the images that holding leaves: copies of its spectrum around the multiples of 1 / P.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..schedule import Schedule
from .states import Array


@dataclass(frozen=True)
class Spectrum:
    """Power spectral densities of the modules of a layer.

    >>> wave = np.sin(2 * np.pi * np.arange(64) / 8)[:, None]
    >>> spectrum = measure_spectrum([wave], Schedule((1,), (1,)))
    >>> spectrum.median(0), round(spectrum.share_below(0, 0.2), 3)
    (0.125, 1.0)
    """

    frequencies: Array
    """(F,): cycles per step, from 0 to 1/2."""
    density: Array
    """(G, F): the density of each module. Its sum times the distance of two frequencies is a unit's mean power."""

    def share_below(self, module: int, frequency: float) -> float:
        """The share of a module's power at frequencies up to `frequency`; NaN for a module with a constant state."""
        power = self.density[module]
        total = float(power.sum())
        return float(power[self.frequencies <= frequency].sum()) / total if total > 0 else math.nan

    def median(self, module: int) -> float:
        """The frequency below which half of a module's power lies; NaN for a module with a constant state."""
        summed = self.density[module].cumsum()
        return float(self.frequencies[np.searchsorted(summed, summed[-1] / 2)]) if summed[-1] > 0 else math.nan


def measure_spectrum(states: Sequence[Array], schedule: Schedule) -> Spectrum:
    """The power spectral density of each module's states.

    For every sequence and unit, the mean is subtracted, a Hann window is applied, and the squared Fourier transform is
    divided by the sum of the squared window. The density of a module is the mean over its units, and over sequences
    weighted by their length.

    Args:
        states: (T, N) for each sequence, held between ticks, as `compute_states` returns them
        schedule: periods and sizes of the modules

    >>> wave = np.sin(2 * np.pi * np.arange(64) / 8)[:, None]
    >>> spectrum = measure_spectrum([wave], Schedule((1,), (1,)))
    >>> float(spectrum.frequencies[spectrum.density[0].argmax()])
    0.125
    """
    steps = max(len(sequence) for sequence in states)
    frequencies = np.fft.rfftfreq(steps).astype(np.float64)
    total = np.zeros((len(frequencies), schedule.hidden_size))
    for sequence in states:
        T = len(sequence)
        # without the zeros at both ends, so that every step counts
        window = np.sin(np.pi * np.arange(1, T + 1) / (T + 1)) ** 2
        windowed = (sequence - sequence.mean(axis=0)) * window[:, None]
        total += T * np.abs(np.fft.rfft(windowed, steps, axis=0)) ** 2 / np.square(window).sum()
    total /= sum(len(sequence) for sequence in states)
    # positive and negative frequencies are added; 0 and 1/2 have one sign only
    total[1 : (steps + 1) // 2] *= 2
    density = np.stack([total[:, units].mean(axis=1) for units in schedule.slices])
    return Spectrum(frequencies, density)


def held_noise_density(frequencies: ArrayLike, period: int) -> Array:
    """The power spectral density of white noise of power 1, each value of which is held for `period` steps.

    It is the density of a module whose state at every tick is independent of the one before.

    Args:
        frequencies: cycles per step
        period: steps between two ticks

    >>> held_noise_density([0.1, 0.25, 0.4], 1).tolist()
    [2.0, 2.0, 2.0]
    >>> held_noise_density([0.25, 0.5], 4).round(12).tolist()  # zero at the multiples of 1 / period
    [0.0, 0.0]
    """
    frequencies = np.asarray(frequencies, dtype=np.float64)
    # numpy's sinc(x) is sin(pi x) / (pi x), and 1 at x = 0
    return np.asarray(2 * period * np.square(np.sinc(frequencies * period) / np.sinc(frequencies)))
