"""Compressed chunks, as docs/protocol/content.md tells of them, with the program `zstd`."""

import struct
import subprocess
import tempfile

from chunks import CHUNK_MAX

MAGIC = bytes.fromhex("28b52ffd")


def compressed(chunk):
    """The frame of a chunk; nothing if it saves less than an eighth."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(chunk)
        file.flush()
        # Of a file it knows the size, and tells it.
        frame = subprocess.run(["zstd", "-1", "-q", "-c", file.name], stdout=subprocess.PIPE, check=True).stdout
    return frame if len(frame) <= len(chunk) - max(1, len(chunk) // 8) else None


def header(frame):
    """Where the size of the content lies in a frame, its format, and what is to be added to it."""
    descriptor = frame[4]
    start = 5 + (0 if descriptor & 0x20 else 1) + (0, 1, 2, 4)[descriptor & 3]
    kind, added = [("<B", 0), ("<H", 256), ("<I", 0), ("<Q", 0)][descriptor >> 6]
    return start, kind, added


def length_of(frame):
    """How long the chunk says to be. Nothing is decoded for it."""
    assert frame[:4] == MAGIC and frame[4] & 0x20 or frame[4] >> 6, "the header tells the size"
    start, kind, added = header(frame)
    length = struct.unpack_from(kind, frame, start)[0] + added
    assert 0 < length <= CHUNK_MAX and len(frame) < length, "a chunk's size, and the frame is shorter"
    return length


def saying(frame, length):
    """The same frame, which says another length."""
    start, kind, added = header(frame)
    return frame[:start] + struct.pack(kind, length - added) + frame[start + struct.calcsize(kind):]


def decompressed(frame):
    """The chunk of a frame, in no more memory than it says."""
    length = length_of(frame)
    program = subprocess.Popen(["zstd", "-d", "-q", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    chunk = program.communicate(frame)[0]
    assert program.returncode == 0 and len(chunk) == length, "it fills what it says"
    return chunk
