"""The timeline of a report: data in the page for timeline.js, and strips for readers without scripts."""
