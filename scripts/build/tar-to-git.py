#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""tar-to-git.py TARBALL VERSION | git fast-import

Writes the content of a kernel tarball as one commit, without its first path
component. The commit depends only on the content and on VERSION, so it has the
same id on every machine. (git add would need the files on disk twice.)
"""
import stat
import sys
import tarfile

if len(sys.argv) != 3 or sys.argv[1] == "--help":
    print(__doc__.strip(), file=sys.stderr)
    sys.exit(0 if sys.argv[1:] == ["--help"] else 2)

tarball, version = sys.argv[1:]
out = sys.stdout.buffer
files = 0
subject = f"Linux {version}\n".encode()
out.write(b"commit refs/heads/base\n")
out.write(b"author base <base@localhost> 0 +0000\ncommitter base <base@localhost> 0 +0000\n")
out.write(b"data %d\n%s" % (len(subject), subject))
with tarfile.open(tarball, "r|*") as tar:
    for member in tar:
        path = member.name.removeprefix("./").partition("/")[2]
        if member.isfile():
            data = tar.extractfile(member).read()
            mode = b"100755" if member.mode & stat.S_IXUSR else b"100644"
        elif member.issym():
            data, mode = member.linkname.encode(), b"120000"
        elif member.isdir():
            continue
        else:
            sys.exit(f"tar-to-git.py: {member.name}: neither a file nor a symbolic link")
        out.write(b"M %s inline %s\ndata %d\n%s\n" % (mode, path.encode(), len(data), data))
        files += 1
        if files % 20000 == 0:
            print(f"  imported {files} files", file=sys.stderr)
