"""The only readers of CSV, JSON, JSON Lines, Parquet and YAML files: one of each, for every verb.

What a cell means does not depend on the format or on who reads it:

==================  =======================================  ==============================
in the file         where text is wanted                     where a number is wanted
==================  =======================================  ==============================
text                exactly the text in the file             refused; in CSV, which has
                                                             nothing but text, read as one
nothing             missing: ""                              missing: NaN
whole number        its digits                               the number
other number        the shortest text that reads back to     the number
                    it; a whole one (17.0) as digits (17)
true, false         `true`, `false`                          refused
date, time          ISO 8601                                 refused
bytes               refused                                  refused
list, object        refused                                  refused
==================  =======================================  ==============================

Nothing is an empty cell in CSV; null or an absent field in JSON; null or NaN in Parquet. Words such as "NA",
"null" or "nan" are text. Whole numbers with gaps, which pandas stores as 17.0, are 17 again. JSON is read
strictly: a name twice in one object, NaN and Infinity are refused. YAML gives plain values, each key once,
every key a text.

Every fault is an `InputError` of one line that names the file, the line or row, and the remedy.
"""

from vestige.readers.bytes_and_text import decoded, file_bytes, text_of_file
from vestige.readers.csv_files import CSV_SUFFIXES
from vestige.readers.json_files import JSONL_SUFFIXES, json_lines, json_value, list_in, read_json
from vestige.readers.table import Cell, Table, need_columns, text_of_cell
from vestige.readers.tables import TABLE_SUFFIXES, read_table
from vestige.readers.yaml_files import yaml_mapping, yaml_value

__all__ = [
    "CSV_SUFFIXES",
    "JSONL_SUFFIXES",
    "TABLE_SUFFIXES",
    "Cell",
    "Table",
    "decoded",
    "file_bytes",
    "json_lines",
    "json_value",
    "list_in",
    "need_columns",
    "read_json",
    "read_table",
    "text_of_cell",
    "text_of_file",
    "yaml_mapping",
    "yaml_value",
]
