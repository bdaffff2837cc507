"""What is to be computed, as pure data: ops, buffers and their lifetimes, weight layouts, kernel text.

May know: shapes, tensor types, the limits of a device.
Must not know: `js`, a real device, how a plan is executed. Everything here runs under CPython.
"""
