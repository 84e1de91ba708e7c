"""The timeline of a report: data in the page for the scripts of templates/timeline, and strips for readers without scripts."""
