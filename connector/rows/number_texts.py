"""Numbers as text, a whole column at a time."""

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc


def double_texts(doubles: pa.DoubleArray) -> pa.StringArray:
    """The shortest digits that mean the number, as documents have them."""
    numbers = doubles.fill_null(0).to_numpy()
    texts = orjson.dumps(np.where(np.isfinite(numbers), numbers, 0.0), option=orjson.OPT_SERIALIZE_NUMPY)
    finite = pa.array(texts[1:-1].decode().split(",") if len(doubles) else [], pa.string())
    named = np.select([np.isnan(numbers), numbers > 0], ["NaN", "Infinity"], "-Infinity")
    values = pc.if_else(pa.array(np.isfinite(numbers)), finite, pa.array(named, pa.string()))
    return pc.if_else(doubles.is_valid(), values, pa.scalar(None, pa.string()))
