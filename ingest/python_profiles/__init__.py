"""Results of cProfile and Pyinstrument -> rows."""
