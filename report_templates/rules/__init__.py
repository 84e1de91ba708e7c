"""Which figures and tables show what a rule looked at? One file per kind of rule; ``sections/rules.py`` puts them together."""
