"""Samples of the machine: utilization, clocks, memory, counters."""
