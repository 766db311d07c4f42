"""The one way to files: found, made and opened from folders that are held, with the rights of who asked for it."""

from netprof.files.directory import (
    Directory,
    OutputPlace,
    made_whole,
    make_folder,
    open_file,
    own_descriptor,
    read_all,
)
from netprof.files.temporary import TemporaryFolder, unnamed_file
from netprof.files.user import User, as_user, caller

__all__ = [
    "Directory",
    "OutputPlace",
    "TemporaryFolder",
    "User",
    "as_user",
    "caller",
    "made_whole",
    "make_folder",
    "open_file",
    "own_descriptor",
    "read_all",
    "unnamed_file",
]
