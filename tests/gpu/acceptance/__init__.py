"""The acceptance suite of GPU recording: known work on a device -> whether the recording is exact, its cost, and examples."""
