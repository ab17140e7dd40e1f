#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Turn a tar archive into a cpio archive that the kernel unpacks at boot.

usage: tar-to-cpio.py FOLDER <TAR >CPIO

Everything is placed below FOLDER. Devices and other special files are left out. So are time stamps,
which the kernel would drop.
"""

import shutil
import stat
import sys
import tarfile

KINDS = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.REGTYPE: stat.S_IFREG, tarfile.SYMTYPE: stat.S_IFLNK,
         # as a symlink, because the content came earlier in the stream
         tarfile.LNKTYPE: stat.S_IFLNK}


def pad(out, written):
    out.write(bytes(-written % 4))


def entry(out, number, name, mode, member=None, data=b"", source=None):
    name = name.encode() + b"\0"
    size = member.size if source else len(data)
    fields = (number, mode, member.uid if member else 0, member.gid if member else 0, 1,
              0, size, 0, 0, 0, 0, len(name), 0)
    out.write(b"070701" + b"".join(b"%08X" % f for f in fields) + name)
    pad(out, 110 + len(name))
    if source:
        shutil.copyfileobj(source, out)
    else:
        out.write(data)
    pad(out, size)


def convert(tar, out, folder):
    number = 1
    entry(out, number, folder, stat.S_IFDIR | 0o755)
    for member in tar:
        path = member.name.removeprefix("./").strip("/")
        kind = KINDS.get(member.type)
        if path in ("", ".") or kind is None:
            continue
        number += 1
        data, source = b"", None
        if kind == stat.S_IFLNK:
            data = member.linkname.encode()
            if member.type == tarfile.LNKTYPE:
                data = b"/" + data.removeprefix(b"./").lstrip(b"/")
        elif kind == stat.S_IFREG:
            source = tar.extractfile(member)
        entry(out, number, f"{folder}/{path}", kind | stat.S_IMODE(member.mode), member, data, source)
    entry(out, 0, "TRAILER!!!", 0)


def main(args):
    if len(args) != 1 or args[0].startswith("-"):
        print(__doc__, end="", file=sys.stdout if args == ["--help"] else sys.stderr)
        return 0 if args == ["--help"] else 2
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as tar:
        convert(tar, sys.stdout.buffer, args[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
