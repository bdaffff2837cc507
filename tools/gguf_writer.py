"""What every program here that writes GGUF files does with gguf's writer."""

import numpy as np
from gguf import GGUFValueType, GGUFWriter

Value = bool | int | float | str | list[str] | list[int] | list[float] | list[bool] | np.ndarray


def add_value(writer: GGUFWriter, key: str, value: Value) -> None:
    """Add metadata of the type that its value has; integers as uint32, arrays of numpy as uint64."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, np.ndarray):
        writer.add_key_value(key, value.tolist(), GGUFValueType.ARRAY, GGUFValueType.UINT64)
    else:
        writer.add_array(key, value)


def finish(writer: GGUFWriter) -> None:
    """Write everything that was added, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
