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
from netprof.files.process import by_the_caller
from netprof.files.temporary import TemporaryFolder, unnamed_file
from netprof.files.user import User, as_user, caller
from netprof.files.walk import is_file, is_folder, is_pattern, matching, real_path, status_of

__all__ = [
    "Directory",
    "OutputPlace",
    "TemporaryFolder",
    "User",
    "as_user",
    "by_the_caller",
    "caller",
    "is_file",
    "is_folder",
    "is_pattern",
    "made_whole",
    "make_folder",
    "matching",
    "open_file",
    "own_descriptor",
    "read_all",
    "real_path",
    "status_of",
    "unnamed_file",
]
