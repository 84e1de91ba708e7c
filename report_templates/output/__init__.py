"""The written files: HTML, PDF, JUnit, and rule JSON."""
