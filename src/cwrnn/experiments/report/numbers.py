"""Numbers and lists as people read them: in tables, captions, claims and on axes."""

import math
from collections.abc import Sequence


def format_error(error: float) -> str:
    """Returns an error in two significant digits, or "none" if it is not finite.

    >>> [format_error(0.00131), format_error(0.456), format_error(12.3), format_error(4.56e7), format_error(math.nan)]
    ['0.0013', '0.46', '12', '4.6e+07', 'none']
    """
    if not math.isfinite(error):
        return "none"
    if error != 0 and not 1e-4 <= abs(error) < 1e4:
        return f"{error:.1e}"
    return f"{error:#.2g}".rstrip(".") if abs(error) < 100 else f"{error:.0f}"


def format_percent(error: float, unit: str = " %") -> str:
    """Returns an error rate in percent, or "none" if it is not finite.

    >>> [format_percent(0.16789), format_percent(0.16789, unit=""), format_percent(math.nan)]
    ['16.8 %', '16.8', 'none']
    """
    return f"{100 * error:.1f}{unit}" if math.isfinite(error) else "none"


def format_power(rate: float) -> str:
    """Returns a learning rate as an axis shows it.

    >>> [format_power(3e-5), format_power(0.00025), format_power(1.0)]
    ['3e-5', '2.5e-4', '1e0']
    """
    mantissa, exponent = f"{rate:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def format_count(number: int, thing: str) -> str:
    """Returns a number and what it counts, in the plural if it is not 1.

    >>> [format_count(1, "run"), format_count(1200, "run")]
    ['1 run', '1200 runs']
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def format_factor(ratio: float) -> str:
    """Returns a ratio of two errors.

    >>> [format_factor(1.234), format_factor(57.4), format_factor(1234.5), format_factor(1e9), format_factor(math.inf)]
    ['1.2', '57', '1,234', 'more than a million', 'more than a million']
    """
    if ratio > 1e6:
        return "more than a million"
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"


def divide(numerator: float, denominator: float) -> float:
    """Returns the ratio of two errors, which are at least 0: 1 if they are equal, infinity if the denominator is 0.

    >>> [divide(1.0, 4.0), divide(1.0, 0.0), divide(0.0, 0.0), divide(math.inf, math.inf)]
    [0.25, inf, 1.0, 1.0]
    """
    if numerator == denominator:
        return 1.0
    return numerator / denominator if denominator > 0 else math.inf


def compare_errors(reference: float, error: float) -> str:
    """Returns how many times better `error` is than `reference`, or how many times worse.

    >>> [compare_errors(0.4, 0.1), compare_errors(0.1, 0.4), compare_errors(0.1, 0.102)]
    ['4 times better', '4 times worse', 'about as good']
    >>> [compare_errors(0.1, 0.0), compare_errors(0.0, 0.1), compare_errors(0.0, 0.0)]
    ['without any error', 'worse than no error at all', 'about as good']
    """
    ratio = divide(reference, error)
    if 0.95 < ratio < 1.05:
        return "about as good"
    if error == 0:
        return "without any error"
    if reference == 0:
        return "worse than no error at all"
    if ratio >= 1:
        return f"{format_factor(ratio)} times better"
    return f"{format_factor(divide(error, reference))} times worse"


def join_words(words: Sequence[str]) -> str:
    """Returns words as a list in a sentence.

    >>> [join_words(["a", "b", "c"]), join_words(["a"]), join_words([])]
    ['a, b and c', 'a', '']
    """
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"
