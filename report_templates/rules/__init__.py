"""Figures and tables of the rules, one file per kind of rule; ``sections/rules.py`` puts them together."""
