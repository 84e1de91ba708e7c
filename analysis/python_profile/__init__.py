"""Python profiles: functions, windows, flame graphs."""
