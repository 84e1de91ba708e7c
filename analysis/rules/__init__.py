"""Which rules judge a run, and what does each say about it? One file per rule; ``catalogue.py`` lists them, ``engine.py`` runs them."""
