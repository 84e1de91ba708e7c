"""Profiling configuration: classes, files, and the plan that the engine follows."""
