"""How metadata of Iceberg tables is read and written: never deleted, never looked for before."""

from __future__ import annotations

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class _NewFile(PyArrowFile):
    """A file of a name that nobody else has, written without a look whether it is there.

    The look would be a HEAD. Whether an object is missing S3 tells only those who may list the
    whole bucket; the role of a job may list below its own prefix, and gets a 403 that no retry
    mends.
    """

    def create(self, overwrite: bool = False) -> OutputStream:
        """As pyiceberg does where it is told to overwrite."""
        return super().create(overwrite=True)


class KeepingFileIO(PyArrowFileIO):
    """File access that never deletes: no committer knows for certain that its commit failed.

    Every name that it writes has a random part, whether pyiceberg makes it or we do.
    """

    def new_output(self, location: str) -> PyArrowFile:
        """A file to be written."""
        made = super().new_output(location)
        return _NewFile(made.location, made._path, made._filesystem, made._buffer_size)

    def delete(self, location: object) -> None:
        """Nothing happens."""
