"""A workbench for single kernels."""
