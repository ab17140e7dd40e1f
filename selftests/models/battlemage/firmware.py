#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""firmware.py DIR: write a file that xe accepts as the GuC firmware of a Battlemage. It has a header and zeroes, because nothing
runs it. The layout is that of abi/uc_fw_abi.h."""

import pathlib
import struct
import sys

if len(sys.argv) != 2:
    sys.exit(__doc__)
HEADER, KEY, MODULUS, EXPONENT, CODE = 32, 64, 64, 1, 1024      # dwords
SIGNATURE = KEY + MODULUS + EXPONENT

# struct uc_css_header, whose part for a GuC begins at dword 10
header = [0] * HEADER
header[0] = 6                                   # module_type: a CSS header
header[1] = HEADER + SIGNATURE                  # header_size_dw
header[2] = 0x10000                             # header_version
header[6] = HEADER + SIGNATURE + CODE           # size_dw
header[7:10] = KEY, MODULUS, EXPONENT
header[16] = 70 << 16 | 54 << 8                 # sw_version: 70.54.0
header[17] = 1 << 16 | 27 << 8                  # vf_version
path = pathlib.Path(sys.argv[1], "bmg_guc_70.bin")
path.parent.mkdir(parents=True, exist_ok=True)
path.write_bytes(struct.pack(f"<{HEADER}I", *header) + bytes(4 * (SIGNATURE + CODE)))
