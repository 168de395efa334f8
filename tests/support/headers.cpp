// Compiled once: the headers every test program shares.
