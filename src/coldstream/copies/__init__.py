"""Copies of the remote tier elsewhere: a broker's files, tables, another broker."""
