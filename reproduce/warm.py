"""The repository's code, parsed once by the fork server so that no item repeats it.

`modules` remembers what it parses by the text of a file, so that an edited file is parsed anew.
"""

from contextlib import suppress

from reproduce import HOME
from reproduce.modules import import_statements, without_prose

FOLDERS = ("src", "reproduce")

for folder in FOLDERS:
    for file in (HOME / folder).rglob("*.py"):
        # A file that cannot be read is reported by each item that needs it.
        with suppress(OSError, UnicodeDecodeError):
            text = file.read_text(encoding="utf-8")
            without_prose(text)
            import_statements(text)
