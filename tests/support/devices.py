"""Devices that plans are made for without one."""

from py_engine.plan.kernels import Device

# A large GPU with everything that plans use.
GPU = Device(
    f16=True,
    subgroup=32,
    max_workgroup_storage=48 << 10,
    max_threads=1024,
    max_storage_buffers=16,
    dot8=True,
    matrix=16,
)
