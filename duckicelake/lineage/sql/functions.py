"""PURE. Functions by name (aggregates, masking, file readers), and files in SQL as datasets."""

import posixpath
import re
from typing import Final

from sqlglot import exp

from duckicelake.lineage.openlineage.names import name_location
from duckicelake.lineage.sql.model import SqlDataset

_WINDOW_ONLY: Final = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)
RANKING: Final = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile)
_ENDINGS: Final = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".avro", ".xlsx", ".gz", ".zst", ".parq")
_PATTERN: Final = re.compile(r"[*?\[{]")
_ABSOLUTE: Final = re.compile(r"/|[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


def _collect_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MASKING: Final = _collect_names("""
    md5 md5_number md5_number_lower md5_number_upper md5_digest sha sha1 sha1_hex sha2 sha2_digest sha256 sha384
    sha512 hash hive_hash murmur3 murmur_hash xxhash64 spooky_hash_v2_32 spooky_hash_v2_64 crc32 standard_hash
    farm_fingerprint hmac_md5 hmac_sha1 hmac_sha256 hmac_sha512 mask count count_if countif count_star
    approx_distinct approx_count_distinct regr_count
""")
"""Functions that OpenLineage's Spark listener takes for masking: hashes, masks, counts."""

AGGREGATES: Final = _collect_names("""
    any_value approx_count_distinct approx_distinct approx_percentile approx_quantile approx_top_k arbitrary
    arg_max arg_max_null arg_min arg_min_null argmax argmin array_agg avg bag bit_and bit_or bit_xor
    bitstring_agg bool_and bool_or checksum collect_list collect_set corr count count_if count_star countif
    covar_pop covar_samp entropy every favg first first_value fsum geomean geometric_mean group_concat grouping
    histogram histogram_exact kahan_sum kurtosis kurtosis_pop last last_value list listagg mad map_agg map_union
    max max_by maxmap mean median min min_by minmap mode multimap_agg percentile percentile_approx
    percentile_cont percentile_disc product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness some std stddev
    stddev_pop stddev_samp string_agg sum sum_no_overflow sumkahan try_avg try_sum var_pop var_samp variance
    weighted_avg
""")

FILE_READERS: Final = _collect_names("""
    read_parquet parquet_scan read_csv read_csv_auto read_json read_json_auto read_json_objects
    read_json_objects_auto read_ndjson read_ndjson_auto read_ndjson_objects read_text read_blob read_xlsx
    sniff_csv st_read delta_scan iceberg_scan parquet_metadata parquet_schema parquet_file_metadata
    parquet_kv_metadata read_avro
""")


def find_function_name(node: exp.Expr) -> str:
    """Find a function's name in lower case; sqlglot's own name if it keeps no other."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    names = type(node).sql_names() if isinstance(node, exp.Func) else [node.key]
    return names[0].lower()


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether the call makes one value from many rows."""
    if isinstance(node, _WINDOW_ONLY):
        return False
    return isinstance(node, exp.AggFunc) or find_function_name(node) in AGGREGATES


def is_masking(node: exp.Expr) -> bool:
    """Return whether the result hides the arguments."""
    return find_function_name(node) in MASKING


def is_file_reader(node: exp.Expr | None) -> bool:
    """Return whether the node is a table function that reads the files of its first argument."""
    return isinstance(node, exp.Func) and find_function_name(node) in FILE_READERS


def is_file_name(name: str) -> bool:
    """Return whether DuckDB reads this table name as a file's name."""
    return name.lower().partition("?")[0].endswith(_ENDINGS)


def name_file_dataset(path: str, folder: str = "/") -> SqlDataset | None:
    """Name the dataset of a path, relative to the folder.

    A pattern is the folder above its first wildcard.
    """
    if not path or "\0" in path:
        return None
    is_url = "://" in path
    absolute = path if _ABSOLUTE.match(path) else posixpath.join(folder, path)
    place = _cut_patterns(absolute.partition("?")[0] if is_url else posixpath.normpath(absolute))
    try:
        return SqlDataset(*name_location(place))
    except ValueError:
        return None


def _cut_patterns(path: str) -> str:
    found = _PATTERN.search(path)
    return path if found is None else path[: found.start()].rpartition("/")[0] or "/"
