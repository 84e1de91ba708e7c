"""The engine of framework profiling: operators, data loaders and Python functions, in the steps or times of a plan.

:mod:`.engine` opens and closes the parts, :mod:`.steps` notifies it of steps, :mod:`.part` defines a part. See docs/capture.md.
"""
