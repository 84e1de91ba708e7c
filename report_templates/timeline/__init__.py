"""How does a report show a timeline? Encoded into the page, drawn there by timeline.js, and as strips where no script runs."""
