"""Reports of many runs, night after night, from folders and object stores."""
