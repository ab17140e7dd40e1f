#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""firmware.py DIR: write files that nouveau accepts as the firmware of a GP100. They give it a GR engine, which the channels of
programs need. The files have headers and zeroes, because nothing runs them. The layouts are those that nouveau parses
(include/nvfw, nvkm/subdev/acr, nvkm/engine/gr)."""

import pathlib
import struct
import sys

BIN_MAGIC, HS_MAGIC = 0x10DE, 0x3B1D14F0


def words(*values):
    return struct.pack(f"<{len(values)}I", *values)


def image(size, parts):
    """parts: {offset: bytes}. The rest is zeroes"""
    data = bytearray(size)
    for at, part in parts.items():
        data[at:at + len(part)] = part
    return bytes(data)


# struct nvfw_bin_hdr: magic, version, size of the file, where the header, the data and its size are.
BOOTLOADER = image(0x300, {
    0x00: words(BIN_MAGIC, 1, 0x300, 0x18, 0x100, 0x200),
    0x18: words(0, 0, 0, 0x100, 0, 0),                                  # struct nvfw_bl_desc
})
SIGNED = image(0x2000, {
    0x00: words(HS_MAGIC, 1, 0x2000, 0x18, 0x1000, 0x1000),
    0x18: words(0x100, 16, 0x110, 16, 0x800, 0, 0x40, 0x1C),            # struct nvfw_hs_header: signatures, load header
    0x40: words(0, 0x100, 0x800, 0x400, 1, 0x100, 0x100),               # struct nvfw_hs_load_header
})
FILES = {
    "acr/bl.bin": BOOTLOADER,
    "acr/ucode_load.bin": SIGNED,
    "acr/ucode_unload.bin": SIGNED,
    # Lists of registers and values, one entry each.
    "gr/sw_nonctx.bin": words(0x404164, 0),
    "gr/sw_ctx.bin": words(0x404164, 0, 0),
    "gr/sw_bundle_init.bin": words(0x1000, 0),
    "gr/sw_method_init.bin": words(0xC097, 0),
}
for falcon in "fecs", "gpccs":
    FILES[f"gr/{falcon}_bl.bin"] = BOOTLOADER
    FILES[f"gr/{falcon}_inst.bin"] = bytes(0x100)
    FILES[f"gr/{falcon}_data.bin"] = bytes(0x100)
    FILES[f"gr/{falcon}_sig.bin"] = bytes(76)

if len(sys.argv) != 2:
    sys.exit(__doc__)
for name, content in FILES.items():
    path = pathlib.Path(sys.argv[1], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
