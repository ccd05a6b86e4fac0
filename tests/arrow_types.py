"""Two cells of every type that Arrow has."""

import pyarrow as pa
import pyarrow.compute as pc


def union(dense):
    kinds, children = pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    if dense:
        return pa.UnionArray.from_dense(kinds, pa.array([0, 1], pa.int32()), children)
    return pa.UnionArray.from_sparse(kinds, children)


def every_type():
    """By name. The cells of a numeric type are 1 and 2, where it has such."""
    small = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    floats = [pa.float16(), pa.float32(), pa.float64()]
    decimals = [pa.decimal32(5, 1), pa.decimal64(10, 2), pa.decimal128(30, 4), pa.decimal256(70, 6)]
    times = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "Europe/Berlin")]
    times += [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    times += [pa.duration(unit) for unit in ("s", "ms", "us", "ns")]
    texts = [pa.string(), pa.large_string(), pa.string_view()]
    blobs = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)]
    lists = [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 1)]
    lists += [pa.list_view(pa.int64()), pa.large_list_view(pa.int64())]
    arrays = {str(kind): pa.array([1, 2], kind) for kind in small + floats + decimals}
    arrays |= {str(kind): pa.array([86_400_000, 172_800_000], pa.int64()).cast(kind) for kind in times[:8]}
    arrays |= {str(kind): pa.array([1, 2], kind) for kind in times[8:]}
    arrays |= {str(kind): pa.array(["u", "v"], kind) for kind in texts}
    arrays |= {str(kind): pa.array([b"u", b"\xff"], kind) for kind in blobs}
    arrays |= {str(kind): pa.array([[1], [2]], kind) for kind in lists}
    extensions = [(pa.uuid(), [b"0" * 16, b"1" * 16]), (pa.json_(), ["{}", "[]"]), (pa.bool8(), [0, 1])]
    extensions += [(pa.opaque(pa.int64(), "kind", "vendor"), [1, 2])]
    extensions += [(pa.fixed_shape_tensor(pa.int64(), [1]), [[1], [2]])]
    return arrays | {
        "null": pa.nulls(2),
        "bool": pa.array([True, False]),
        "bool with a gap": pa.array([True, None]),
        "int64 with a gap": pa.array([2**53 + 1, None]),
        "uint64 with a gap": pa.array([2**64 - 1, None], pa.uint64()),
        "double with gaps": pa.array([float("nan"), None]),
        "a far timestamp": pa.array([2**62, -(2**62)], pa.timestamp("s")),
        "a far date": pa.array([2**31 - 1, None], pa.date32()),
        "a far duration": pa.array([2**62, None], pa.duration("s")),
        "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
        "struct": pa.array([{"a": 1, "b": None}, None]),
        "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "list of lists of bytes": pa.array([[[b"\xff"]], None]),
        "dictionary of text": pa.array(["u", "v"]).dictionary_encode(),
        "dictionary of dates": pa.array([1, 2], pa.date32()).dictionary_encode(),
        "runs of numbers": pc.run_end_encode(pa.array([1, 2])),
        "runs of text": pc.run_end_encode(pa.array(["u", "v"])),
        "dense union": union(dense=True),
        "sparse union": union(dense=False),
        **{str(kind): pa.ExtensionArray.from_storage(kind, pa.array(v, kind.storage_type)) for kind, v in extensions},
    }
