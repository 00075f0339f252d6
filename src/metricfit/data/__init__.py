"""Tables: from files and frames to features that a network can take."""

from metricfit.data.columns import GAPS, ColumnFormat
from metricfit.data.encoders import FittedColumn
from metricfit.data.labelled import LabelledTable, NotEnoughMemoryError, Roles, read_labelled, read_labelled_like
from metricfit.data.preprocessing import TablePreprocessor
from metricfit.data.reader import BadArgumentError, BadDataError, TableFile, open_table
from metricfit.data.shards import Shards

__all__ = [
    "GAPS", "BadArgumentError", "BadDataError", "ColumnFormat", "FittedColumn", "LabelledTable", "NotEnoughMemoryError",
    "Roles", "Shards", "TableFile", "TablePreprocessor", "open_table", "read_labelled", "read_labelled_like",
]  # fmt: skip
