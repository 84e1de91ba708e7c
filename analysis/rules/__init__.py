"""The rules of a report: ``catalogue.py`` lists them, ``engine.py`` runs them, and ``checks`` has a file per rule."""
