"""What upstream's ``agnhost mounttest`` prints of files, by a Python program in the lab's own image.

The flags and the lines are upstream's, so the rows can be read beside their tests.
"""

from __future__ import annotations

from typing import Any

from tests.fidelity.specs import Images, Pod, container

NEW = "mount-tester new file"
_PROGRAM = r"""
import os, re, stat, sys

os.umask(0)


def content(path):
    with open(path) as stream:
        print('content of file "%s": %s' % (path, stream.read()))


def letters(path, mode, what):
    kept = "".join(letter for letter, is_set in what if is_set) or "-"
    rights = "".join(c if mode & 1 << 8 - n else "-" for n, c in enumerate("rwxrwxrwx"))
    return kept + rights


def file_mode(path):
    mode = os.stat(path).st_mode
    flags = [("d", stat.S_ISDIR(mode)), ("u", mode & 0o4000), ("g", mode & 0o2000), ("t", mode & 0o1000)]
    print('mode of file "%s": %s' % (path, letters(path, mode, flags)))


def file_perm(path):
    print('perms of file "%s": %s' % (path, letters(path, os.stat(path).st_mode, [])))


def fs_type(path):
    best = ("", "")
    for line in open("/proc/self/mountinfo"):
        words = line.split()
        place = words[4].rstrip("/")
        if (path + "/").startswith(place + "/") and len(place) >= len(best[0]):
            best = (place, words[words.index("-") + 1])
    print('mount type of "%s": %s' % (path, best[1]))


for argument in sys.argv[1:]:
    flag, path = argument[2:].split("=", 1)
    new = re.fullmatch("new_file_([0-7]{4})", flag)
    if new:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, int(new[1], 8)), "w") as stream:
            stream.write("mount-tester new file\n")
        content(path)
    else:
        globals()["content" if flag == "file_content" else flag](path)
"""


def mounttest(images: Images, *flags: str, **fields: Any) -> Pod:
    """A container that does what the flags say, in their order."""
    return container(images.python, None, command=["python3", "-c", _PROGRAM, *flags], **fields)


def content(path: str, text: str) -> str:
    """The line on a file's content."""
    return f'content of file "{path}": {text}'


def mode(path: str, letters: str = "-rw-r--r--") -> str:
    """The line on a file's mode."""
    return f'mode of file "{path}": {letters}'


def perms(path: str, letters: str) -> str:
    """The line on a file's permissions."""
    return f'perms of file "{path}": {letters}'
