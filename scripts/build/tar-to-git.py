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
tree = []


def blob(data):
    out.write(b"blob\nmark :%d\ndata %d\n" % (len(tree) + 1, len(data)))
    out.write(data)
    out.write(b"\n")


with tarfile.open(tarball, "r|*") as tar:
    for member in tar:
        path = member.name.removeprefix("./").partition("/")[2]
        if member.isfile():
            blob(tar.extractfile(member).read())
            mode = b"100755" if member.mode & stat.S_IXUSR else b"100644"
        elif member.issym():
            blob(member.linkname.encode())
            mode = b"120000"
        elif member.isdir():
            continue
        else:
            sys.exit(f"tar-to-git.py: {member.name}: neither a file nor a symbolic link")
        tree.append((mode, path.encode()))
        if len(tree) % 20000 == 0:
            out.write(b"progress %d files\n" % len(tree))

subject = f"Linux {version}\n".encode()
out.write(b"commit refs/heads/base\n")
out.write(b"author base <base@localhost> 0 +0000\ncommitter base <base@localhost> 0 +0000\n")
out.write(b"data %d\n%s" % (len(subject), subject))
for mark, (mode, path) in enumerate(tree, 1):
    out.write(b"M %s :%d %s\n" % (mode, mark, path))
