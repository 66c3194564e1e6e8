"""Names of exported networks: they begin the name of every function and type, and of both files."""

import re

from ...experiments.errors import ArgumentError

LONGEST_NAME = 40
"""The most characters of a name. Compilers tell at least 63 characters apart, and the longest suffix has 16."""

C_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while alignas "
    "alignof bool constexpr false nullptr static_assert thread_local true typeof typeof_unqual"
)
"""The keywords of C, up to C23."""
CPP_KEYWORDS = (
    "and and_eq asm bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept "
    "consteval constinit const_cast decltype delete dynamic_cast explicit export friend mutable namespace new noexcept "
    "not not_eq operator or or_eq private protected public reinterpret_cast requires static_cast template this throw "
    "try typeid typename using virtual wchar_t xor xor_eq"
)
"""The further keywords of C++, up to C++20."""
HEADERS = (
    "arm_acle assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg "
    "stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype"
)
"""The headers of the C library, and that of Arm's instructions, which a file of the same name would hide."""
DEVICES = re.compile(r"con|prn|aux|nul|com\d|lpt\d", re.IGNORECASE)
"""The names that Windows keeps for devices: no file can have them."""


def check_name(name: str) -> str:
    """Returns `name`; raises an ArgumentError if functions and files in C cannot begin with it.

    >>> check_name("word_model")
    'word_model'
    >>> check_name("2nd")
    Traceback (most recent call last):
        ...
    cwrnn.experiments.errors.ArgumentError: name: expected a C identifier, such as word_model, got '2nd'
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        raise ArgumentError("name", f"expected a C identifier, such as word_model, got {name!r}")
    if name.startswith("_"):
        raise ArgumentError("name", f"expected a name without _ at its start, which C keeps for itself, got {name!r}")
    if name in f"{C_KEYWORDS} {CPP_KEYWORDS}".split():
        raise ArgumentError("name", f"expected a name that is no keyword of C or C++, got {name!r}")
    # systems such as Windows and macOS find a file whatever the case of its name
    if name.lower() in HEADERS.split():
        raise ArgumentError("name", f"expected a name that is no header of C, got {name!r}")
    if DEVICES.fullmatch(name):
        raise ArgumentError("name", f"expected a name that Windows does not keep for a device, got {name!r}")
    if len(name) > LONGEST_NAME:
        raise ArgumentError("name", f"expected at most {LONGEST_NAME} characters, got {len(name)}")
    return name
