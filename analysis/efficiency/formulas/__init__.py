"""Work of single operators: a table per family, from the operator's name to its formula."""
