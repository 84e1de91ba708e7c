"""The sections of the report, one module each: Report in, what its template shows out."""
