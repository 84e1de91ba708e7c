"""What does a recording profile beside the system: operators, data loaders, Python functions, in which steps or times?

:mod:`.engine` opens and closes the parts, :mod:`.steps` tells it of steps, :mod:`.part` is what a part is. See docs/capture.md.
"""
