"""Mutations: valid bytes, texts and JSON, changed in places where programs make mistakes.

All choices come from the generator that is passed in, so the same generator makes the same mutation.
"""

import re
import struct
from collections.abc import Sequence
from random import Random

LARGEST = 1_000_000
"""No mutation makes a case larger than this: the limit of 1 GB of memory is for files below 1 MB."""

INTEGERS = (
    0, 1, 2, 3, 7, 8, 27, 63, 64, 65, 127, 128, 255, 256, 1000, 32767, 32768, 44100, 65535, 65536, 2**24, 2**31 - 1,
    2**31, 2**32 - 1, 2**32, 2**40, 2**48, 2**53 + 1, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64,
)  # fmt: skip
"""Integers at which something changes: the ends of machine integers, of floats, and of sizes."""

FLOATS = (0.0, -0.0, 1e-45, 1e-30, 1e-5, 0.5, 1.0, 100.0, 1e5, 1e18, 1e30, 3e38, 1e300, 1.7e308)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))

NUMBERS = (
    "0", "1", "-1", "2", "-0", "-0.0", "0.5", "1.5", "1e5", "1e18", "1e-400", "1e400", "-1e400", "1e308", "NaN",
    "Infinity", "-Infinity", "nan", "inf", "1_0", "0x10", "007", "+1", " 1 ", "1.", "٣", "²", "1e", "--1",
    *(str(number) for number in INTEGERS), *(str(-number) for number in INTEGERS[-8:]), "1" + "0" * 400, "9" * 5000,
)  # fmt: skip
"""Texts that are numbers, or nearly so."""

TEXTS = (
    "", " ", "\x00", "a\x00b", "\n", "\r", "\t", ".", "..", "/", "-", "--", "%s", "{0}", "{}", "$x_{", "$", "\\",
    "\\frac{",
    '"', "'", "<b>", "&amp;", "{{ 7 * 7 }}", "{% raw %}", "\ud800", "a\udcffb", "\ufeff", "\u202e", "\u2028",
    "\x1b[31m",
    "é", "e\u0301", "\U0001f600", "None", "null", "true", "words", "generation", "cw", "srn", "lstm", "1:1",
    "1:4,2:4", "1:99999",
    "1:1,1099511627777:1", "bundle", "a" * 300, "a" * 5000, "é" * 5000, "../../outside",
)  # fmt: skip
"""Texts that programs mistake for something else: markup, paths, control characters, surrogates."""


def mutate_bytes(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return the bytes with one to four changes; `others` are bytes to take parts from."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        data = _mutate_bytes_once(random, data, others)
    return data[:LARGEST]


def _mutate_bytes_once(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    place = _choose_place(random, len(data))
    length = min(random.choice((1, 2, 4, 8, 16, 64, 256, 1024)), len(data) - place)
    kind = random.randrange(11)
    if kind == 0 and data:
        place = min(place, len(data) - 1)
        return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data[:place] + data[place + length :]
    if kind == 3:
        return data[:place] + random.randbytes(random.choice((1, 2, 4, 8, 64))) + data[place:]
    if kind == 4:
        return (
            data[: place + length] + data[place : place + length] * random.choice((1, 2, 10)) + data[place + length :]
        )
    if kind == 5:
        # a long run of one byte, or of a few: what is quadratic shows only there
        filler = data[place : place + random.choice((1, 1, 2, 5))] if random.random() < 0.5 else random.choice(FILLERS)
        return (
            data[:place]
            + (filler or b"\0") * (random.choice((100, 10_000, 300_000)) // max(1, len(filler)))
            + data[place:]
        )
    if kind in (6, 7):
        return overwrite_integer(random, data, place)
    if kind == 8:
        return data[:place] + bytes(length) + data[place + length :]
    if kind == 9 and others:
        other = random.choice(others)
        start = _choose_place(random, len(other))
        return data[:place] + other[start : start + random.choice((8, 64, 1024, len(other)))] + data[place + length :]
    number = random.choice(FLOATS + NOT_FINITE)
    packed = (
        struct.pack("<d", number)
        if random.random() < 0.5 or 3.4e38 < abs(number) < 1e309
        else struct.pack("<f", number)
    )
    # numbers begin at multiples of their size
    place -= place % 4
    return data[:place] + packed + data[place + len(packed) :]


FILLERS = (b" ", b"\n", b"\0", b"\xff", b"a", b"[", b"(", b'"', b"\\", b",", b"0", b"9", b"a -i 1\n", b"\r\n", b"\t ")


def overwrite_integer(random: Random, data: bytes, place: int) -> bytes:
    """Return the bytes with an integer of 1 to 8 bytes, in either order, written over those at `place`."""
    size = random.choice((1, 2, 4, 4, 8))
    number = random.choice((*INTEGERS, len(data), len(data) - place)) % 2 ** (8 * size)
    return data[:place] + number.to_bytes(size, random.choice(("little", "big"))) + data[place + size :]


def _choose_place(random: Random, length: int) -> int:
    """Return a place in `length` bytes; half of them near the start, where headers are."""
    return random.randrange(min(length, 128) + 1) if random.random() < 0.5 else random.randrange(length + 1)


def mutate_text(random: Random, text: str) -> str:
    """Return the text with one to three changes: numbers and words replaced, parts cut, doubled and inserted."""
    for _ in range(random.choice((1, 1, 2, 3))):
        kind = random.randrange(7)
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice((1, 1, 2, 5, 20)))
        numbers = list(re.finditer(r"-?\d+(\.\d+)?", text))
        if kind <= 1 and numbers:
            number = random.choice(numbers)
            text = text[: number.start()] + random.choice(NUMBERS) + text[number.end() :]
        elif kind == 2:
            text = text[:start] + text[end:]
        elif kind == 3:
            text = text[:end] + text[start:end] * random.choice((1, 2, 1000)) + text[end:]
        elif kind == 4:
            text = text[:start] + random.choice(TEXTS) + text[end:]
        elif kind == 5:
            text = text[:start] + random.choice(",;:.-+ \n\"'x0\x00") + text[start:]
        else:
            text = text[:start]
    return text[:LARGEST]


JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|NaN|-?Infinity')


def mutate_json(random: Random, text: str) -> str:
    """Return JSON with one to three values or keys replaced by hostile ones, doubled or left out.

    A replaced key may be that of a neighbour, which makes a key appear twice. The result is often valid JSON that does
    not make sense; sometimes it is not JSON.
    """
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        tokens = list(JSON_TOKEN.finditer(text))
        if not tokens:
            return text
        token = random.choice(tokens)
        is_key = token[0].startswith('"') and text[token.end() :].lstrip().startswith(":")
        if is_key and random.random() < 0.7:
            value = random.choice([other[0] for other in tokens if other[0].startswith('"')])
        elif random.random() < 0.25:
            value = random.choice(tokens)[0]
        else:
            value = make_json_value(random)
        text = text[: token.start()] + value + text[token.end() :]
    return text[:LARGEST]


def make_json_value(random: Random) -> str:
    """Return the JSON of a hostile value."""
    kind = random.randrange(9)
    if kind <= 2:
        return random.choice(NUMBERS)
    if kind <= 4:
        return quote_json(random.choice(TEXTS))
    if kind == 5:
        return random.choice(("null", "true", "false", "[]", "{}", "[null]", '{"": null}', "[[]]", "[0, 0]", "[1e999]"))
    if kind == 6:
        # reading and writing have different limits near 1000: what can be read need not be written
        near = random.randrange(900, 1010)
        depth = random.choice((10, 150, 400, near, near, near, random.randrange(1000, 5000), 50_000))
        return "[" * depth + "]" * depth if random.random() < 0.6 else '{"a":' * depth + "0" + "}" * depth
    if kind == 7:
        return "[" + ", ".join(random.choice(NUMBERS[:30]) for _ in range(random.choice((1, 2, 65, 1000)))) + "]"
    return random.choice(('"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\u001b"', "00", "'a'", "[1,]", "// "))


def quote_json(text: str) -> str:
    r"""Return the text as JSON; lone surrogates are escaped.

    >>> quote_json('a"\ud800')
    '"a\\"\\ud800"'
    """
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    quoted = re.sub("[\x00-\x1f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", quoted)
    return f'"{quoted}"'
