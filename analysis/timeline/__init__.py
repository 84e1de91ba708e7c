"""The timeline of the report: store -> tracks and events to draw."""
