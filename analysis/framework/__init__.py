"""Work of the framework: annotations, phases, operators on the host."""
