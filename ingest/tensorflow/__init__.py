"""Traces of TensorFlow -> rows."""
