#!/usr/bin/env python3
"""architectures.py LIBRARY NUMBER...: checks that a library has the same kernels for all these architectures.

Reads the device code that nvcc puts into the section .nv_fatbin: ELF files, which hold a section for each kernel.
Example: architectures.py build/release/bin/windrow_cuda.so 80 90
"""
import re
import struct
import sys

CUDA = 190  # the number of the machine in the header of an ELF file


def sections(elf):
    """Yields the names of the sections of an ELF file of 64 bits."""
    offset = struct.unpack_from("<Q", elf, 40)[0]
    size, count, of_names = struct.unpack_from("<HHH", elf, 58)
    names = struct.unpack_from("<Q", elf, offset + of_names * size + 24)[0]
    for i in range(count):
        begin = names + struct.unpack_from("<I", elf, offset + i * size)[0]
        yield elf[begin : elf.index(b"\0", begin)].decode()


def kernels_by_architecture(library):
    """The kernels of each architecture, from all ELF files of the device in the library."""
    found = {}
    for match in re.finditer(b"\x7fELF\x02\x01", library):
        elf = library[match.start() :]
        if struct.unpack_from("<H", elf, 18)[0] != CUDA:
            continue
        flags = struct.unpack_from("<I", elf, 48)[0]
        # Version 8 of the ABI moved the number.
        architecture = flags >> 8 & 0xFF if elf[8] >= 8 else flags & 0xFF
        names = (name[6:] for name in sections(elf) if name.startswith(".text."))
        found.setdefault(architecture, set()).update(names)
    return found


def main():
    path, wanted = sys.argv[1], [int(number) for number in sys.argv[2:]]
    with open(path, "rb") as file:
        found = kernels_by_architecture(file.read())
    everywhere = set().union(*found.values())
    if not everywhere:
        sys.exit(f"{path}: no kernels; expected some")
    for number in wanted:
        missing = everywhere - found.get(number, set())
        if missing:
            sys.exit(f"{path}: {len(missing)} kernels have no code for sm_{number}, such as {min(missing)}")
        print(f"sm_{number}: {len(found[number])} kernels")


main()
