"""What the host gives to an encoder: pictures and frames of sound as rows, and where each row belongs.

May know: the hyperparameters of `models/projectors/`, the inputs that a plan names. Computes with numpy.
Must not know: devices, files, text.
"""
