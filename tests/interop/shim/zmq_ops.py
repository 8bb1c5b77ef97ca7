# SPDX-License-Identifier: Apache-2.0
"""Stands in for tensorpack's zmq_ops module. It is not on PyPI; the package of that name there is
another one. It has the same function, dump_arrays(list of arrays), and the same message layout:
int32 count, then for each array int32 dtype, int32 ndim, int32 dims, int64 nbytes and its bytes.
"""
import struct

import numpy

_DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9,
    "bool": 10, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}


def dump_arrays(arrays):
    """The message of a data point: a list or tuple of C-contiguous arrays, floats and integers."""
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"a data point is a list or tuple of arrays, not {type(arrays).__name__}")
    parts = [struct.pack("=i", len(arrays))]
    for array in arrays:
        if isinstance(array, float):
            array = numpy.array(array, numpy.float32)
        elif isinstance(array, int):
            array = numpy.array(array, numpy.int32)
        assert isinstance(array, numpy.ndarray) and array.flags.c_contiguous, type(array)
        parts.append(struct.pack(f"={2 + array.ndim}iq", _DTYPES[array.dtype.name], array.ndim,
                                 *array.shape, array.nbytes))
        parts.append(array.tobytes())
    return b"".join(parts)
