"""`backstay.map`: makes requests of rows, and rows of answers."""
