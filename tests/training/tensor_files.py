"""Reads and writes tensor files, as programs in Python do.

tensor_files.py ACTION PATH, where ACTION is one of
  write, check                    by this script, with json and struct only
  check-manifest                  reads the manifest of a checkpoint
Both sides of the test know the same tensors.
"""

import json
import struct
import sys

TENSORS = {
    "weight": ("F32", "f", [3, 4], [i * 0.5 - 1 for i in range(12)]),
    "index": ("I32", "i", [5], [-2, -1, 0, 1, 2]),
    "large": ("I64", "q", [2, 1], [-(2**40), 2**40]),
    "seed ü": ("U64", "Q", [1], [2**64 - 1]),
}
METADATA = {"model": "tree ü"}


def packed(letter, values):
    return struct.pack(f"<{len(values)}{letter}", *values)


def write(path):
    header, data = {"__metadata__": METADATA}, b""
    for name, (dtype, letter, shape, values) in TENSORS.items():
        begin = len(data)
        data += packed(letter, values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def check(path):
    with open(path, "rb") as file:
        content = file.read()
    (size,) = struct.unpack("<Q", content[:8])
    assert size % 8 == 0, size
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    assert header.pop("__metadata__") == METADATA
    assert set(header) == set(TENSORS), header
    for name, (dtype, letter, shape, values) in TENSORS.items():
        entry = header[name]
        begin, end = entry["data_offsets"]
        assert (entry["dtype"], entry["shape"]) == (dtype, shape), entry
        assert data[begin:end] == packed(letter, values), name


def check_manifest(path):
    with open(path) as file:
        manifest = json.load(file)
    assert (manifest["format"], manifest["version"], manifest["step"]) == ("windrow checkpoint", 2, 7), manifest
    assert manifest["document"]["rate"] == 0.1, manifest
    assert manifest["tensor_file"]["name"] == "000000000007.safetensors", manifest


if __name__ == "__main__":
    action, target = sys.argv[1:]
    globals()[action.replace("-", "_")](target)
