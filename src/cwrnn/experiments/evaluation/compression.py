"""Compressed bytes that somebody else made: decompressed up to a bound, because a small file can hold huge contents."""

import zlib

GZIP = b"\x1f\x8b"
"""The first bytes of a gzip file."""


def decompress(data: bytes, most: int) -> bytes:
    """Returns what zlib or gzip compressed, or its first `most` bytes if it has more.

    Raises a ValueError for bytes that are damaged or cut short, unless the damage comes after the first `most` bytes.

    >>> decompress(zlib.compress(b"clockwork"), 100), decompress(zlib.compress(bytes(10**6)), 3)
    (b'clockwork', b'\\x00\\x00\\x00')
    """
    if most < 1:
        # 0 would mean no bound
        raise ValueError(f"expected a bound of at least 1 byte, got {most}")
    # zlib finds out which of the two formats it is
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        contents = stream.decompress(data, most)
    except zlib.error as error:
        raise ValueError(f"the compressed data are damaged: {error}") from error
    if len(contents) == most:
        return contents
    if not stream.eof:
        raise ValueError("the compressed data are cut short")
    # archives are padded with zeros
    if stream.unused_data.strip(b"\0"):
        raise ValueError("bytes follow the end of the compressed data")
    return contents
