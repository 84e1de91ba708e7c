"""Files behind a URL or in a folder, behind one interface."""
