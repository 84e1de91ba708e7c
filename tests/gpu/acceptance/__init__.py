"""The acceptance suite of GPU recording: known work on a device -> whether the recording is exact, what it costs, and examples."""
